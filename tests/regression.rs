//! One test for each fault that was found, named after it.

mod support;

use plimsoll::models::Mlp;
use plimsoll::ops::Op;
use plimsoll::{Device, NullDevice, PlanRequest, plan};
use support::{AMPLE, adamw};

/// Fusion refused to move the reading of any weight that the same part updates
/// later, so bias and relu ran as passes of their own.
#[test]
fn bias_and_relu_fuse_although_the_bias_is_updated_later() {
    let model = Mlp::new(&[20, 16, 12, 10]).expect("valid");
    let optimizer = adamw();
    let request = PlanRequest {
        model: &model,
        optimizer: &*optimizer,
        batch: 8,
        evaluate_items: None,
        budget_bytes: AMPLE,
        micro_batches: None,
    };
    let plan = plan(&request, NullDevice::new(1 << 30).description()).expect("plans");
    let forward: Vec<&Op> = plan.parts[0]
        .nodes
        .iter()
        .map(|n| &n.op)
        .take_while(|o| o.name() != "cross_entropy")
        .collect();
    let names: Vec<&str> = forward.iter().map(|o| o.name()).collect();
    assert_eq!(names, ["map", "matmul", "matmul", "matmul"]);
}
