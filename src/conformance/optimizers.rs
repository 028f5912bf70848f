//! Five steps of each optimizer against the same graph in float64.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::execute::{execute, reference};
use super::{Outcome, Test, bound, judge, normalised_error, worst};
use crate::graph::{Graph, Leaf, Mode, Phase};
use crate::ops::{Tensor64, TensorType};
use crate::optimizers::{Adam, Optimizer, Sgd, Update, hyper_leaf};
use crate::philox::{Stream, name_stream};
use crate::{Device, Init, Result};

const STEPS: u64 = 5;

pub fn tests() -> Vec<Test> {
    let sgd = Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let rules: Vec<(&str, Arc<dyn Optimizer>)> = vec![
        ("sgd", Arc::new(sgd.clone())),
        ("sgd_momentum", Arc::new(Sgd { momentum: 0.9, ..sgd.clone() })),
        ("sgd_nesterov_decay", Arc::new(Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.01 })),
        ("adam", Arc::new(Adam::default())),
        ("adam_decay", Arc::new(Adam { weight_decay: 0.01, ..Adam::default() })),
        ("adamw", Arc::new(Adam::adamw())),
    ];
    let mut out = Vec::new();
    for (name, rule) in rules {
        for shape in [vec![1], vec![65, 7], vec![499]] {
            let rule = Arc::clone(&rule);
            let label = format!("optimizer/{name}_{shape:?}/steps").replace(", ", "x");
            out.push(Test::new(label, move |device| steps(&*rule, &shape, device)));
        }
    }
    out
}

fn steps(rule: &dyn Optimizer, shape: &[usize], device: &Arc<dyn Device>) -> Result<Outcome> {
    let tensor = TensorType::f32(shape);
    let mut g = Graph::new(Mode::Train);
    g.phase = Phase::Update;
    let parameter = g.leaf("w", tensor.clone(), Leaf::Parameter(Init::Zeros))?;
    let gradient = g.leaf("gradient", tensor.clone(), Leaf::Input)?;
    let gradient_scale = g.leaf("gradient_scale", TensorType::f32([1]), Leaf::Input)?;
    let hyper = hyper_leaf(&mut g)?;
    let update = Update {
        parameter,
        gradient,
        gradient_scale,
        hyper,
        learning_rate_scale: 0.5,
        weight_decay_scale: 2.0,
    };
    rule.update(&mut g, &update)?;
    // Stored leaves become outputs, so that they can be read after each step.
    let stored: Vec<_> = std::mem::take(&mut g.assigns);
    let names: Vec<String> = stored.iter().map(|(leaf, _)| g.value(*leaf).name.clone()).collect();
    let values: Vec<_> = stored.iter().map(|(_, value)| *value).collect();

    let mut s = Stream::new(5, name_stream(rule.name()));
    let mut random =
        |t: &TensorType| Tensor64::new(t, (0..t.numel()).map(|_| f64::from(s.normal())).collect());
    let mut on_device: BTreeMap<String, Tensor64> = names
        .iter()
        .map(|n| (n.clone(), Tensor64::new(&tensor, vec![0.0; tensor.numel()])))
        .collect();
    on_device.insert("w".into(), random(&tensor));
    let mut exact = on_device.clone();
    for step in 1..=STEPS {
        let hyper: Vec<f64> = rule.hyper(step, 0.01).iter().map(|x| f64::from(*x)).collect();
        let inputs = [
            ("gradient", random(&tensor)),
            ("gradient_scale", Tensor64::new(&TensorType::f32([1]), vec![0.375])),
            (crate::optimizers::HYPER, Tensor64::new(&TensorType::f32([hyper.len()]), hyper)),
        ];
        for (name, value) in inputs {
            on_device.insert(name.into(), value.clone());
            exact.insert(name.into(), value);
        }
        let got = execute(device, g.clone(), &on_device, &values)?;
        let expected = reference(&g, &exact, &values);
        for ((name, x), r) in names.iter().zip(got).zip(expected) {
            on_device.insert(name.clone(), x);
            exact.insert(name.clone(), r);
        }
    }
    // Each step rounds each value a few times (the weight, its decay, the
    // update), as so many more terms of a sum; the update's root and division
    // are good to a few ulp.
    let limit = bound(4 * STEPS as usize, 4.0);
    Ok(worst(
        names
            .iter()
            .map(|n| judge(n, normalised_error(&on_device[n].values, &exact[n].values), limit)),
    ))
}
