//! Finds spheres and tubes in noisy volumes: trains on patches of volumes too
//! large to be taken whole, and cuts volumes that it has not seen into
//! overlapping patches.
//!
//! usage: `segment3d [DEVICE]`

use std::time::Instant;

use anyhow::{Result, ensure};
use plimsoll::data::{Batches, Patches, Volume};
use plimsoll::models::Unet;
use plimsoll::optimizers::{Adam, Decay, Schedule};
use plimsoll::segmentation::{dice, most_probable, segment};
use plimsoll::{PlanRequest, Trainer, devices};

/// Patches of volumes twice as long in each dimension.
const PATCH: [usize; 3] = [16, 16, 16];
const CLASSES: usize = 2;
const BATCH: usize = 4;
const EPOCHS: u64 = 8;
const LEARNING_RATE: f32 = 3e-3;
const BUDGET_BYTES: u64 = 64 << 20;
/// Seeds of the volumes that are looked at in the end, not trained on.
const HELD_OUT: [u64; 3] = [100, 101, 102];

fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(name) => devices::open(&name)?,
        None => devices::open_default()?,
    };
    let data = Patches::synthetic(PATCH, CLASSES)?;
    let model = Unet { size: PATCH.to_vec(), classes: CLASSES, ..Unet::volumes_tiny() };
    let recipe = Adam::adamw().into();
    let request = PlanRequest {
        predict_items: Some(BATCH),
        ..PlanRequest::new(&model, &recipe, BATCH, BUDGET_BYTES)
    };
    let mut trainer = Trainer::new(&request, &*device, 0)?;
    println!(
        "{} on {}: peak {} of {BUDGET_BYTES} bytes",
        data.source,
        device.description().name,
        trainer.plan().peak_bytes
    );
    let begin = Instant::now();
    let mut batches = Batches::training(data.train, BATCH, 0, 0)?;
    let schedule = Schedule {
        warmup_steps: 0,
        total_steps: EPOCHS * batches.batches_per_epoch() as u64,
        decay: Decay::Cosine { floor: 0.05 },
    };
    for epoch in 0..EPOCHS {
        batches.start_epoch(epoch)?;
        while let Some(items) = batches.next() {
            let rate = LEARNING_RATE * schedule.factor(trainer.steps() + 1);
            trainer.train_step(&items.batch(), rate)?;
            batches.recycle(items);
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("epoch {}: loss {:.3} after {seconds:.0} s", epoch + 1, trainer.loss()?);
    }
    let size = PATCH.map(|s| 2 * s);
    let mut mean = 0.0;
    for seed in HELD_OUT {
        let volume = Volume::synthetic(size, CLASSES, seed);
        let truth: Vec<i32> = (0..size.iter().product()).map(|voxel| volume.label(voxel)).collect();
        let found = most_probable(&segment(&mut trainer, &volume, PATCH, CLASSES)?, CLASSES);
        let score = dice(&found, &truth, 1);
        println!("volume {seed}: Dice {score:.3}");
        show(&found, &truth, size);
        mean += score / HELD_OUT.len() as f64;
    }
    println!("mean Dice {mean:.3} on volumes not trained on");
    ensure!(trainer.ledger().peak_bytes <= BUDGET_BYTES, "the line does not hold");
    ensure!(mean >= 0.9, "a Dice of 0.9 was expected");
    Ok(())
}

/// The middle slice: `#` where both say so, `+` where it was found in vain, `-`
/// where it was missed.
fn show(found: &[i32], truth: &[i32], [depth, height, width]: [usize; 3]) {
    let first = depth / 2 * height * width;
    for y in (0..height).step_by(2) {
        let row = (0..width).map(|x| {
            let at = first + y * width + x;
            match (found[at] > 0, truth[at] > 0) {
                (true, true) => '#',
                (true, false) => '+',
                (false, true) => '-',
                (false, false) => '.',
            }
        });
        println!("  {}", row.collect::<String>());
    }
}
