//! Trains a GPT-2 of few layers on Shakespeare's sonnets, byte by byte, prints
//! what it writes as it learns, and compares it with a table of pairs of
//! letters.
//!
//! usage: `char_gpt [DEVICE [TEXT-FILE]]`

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use plimsoll::data::{Batches, Dataset, Question, TokenWindows, Tokens, bigram_loss};
use plimsoll::models::Gpt2;
use plimsoll::optimizers::{Adam, Decay, Recipe, Schedule};
use plimsoll::philox::Stream;
use plimsoll::{Batch, PlanRequest, Trainer, devices};

const MODEL: Gpt2 = Gpt2 { length: LENGTH, layers: 3, width: 96, heads: 4, ..Gpt2::TINY };
const LENGTH: usize = 64;
const BATCH: usize = 16;
const EPOCHS: u64 = 5;
const LEARNING_RATE: f32 = 3e-3;
const BUDGET_BYTES: u64 = 64 << 20;
/// Bytes of a sample, and how likely unlikely ones are.
const SAMPLE_BYTES: usize = 160;
const TEMPERATURE: f32 = 0.8;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let device = match arguments.next() {
        Some(name) => devices::open(&name)?,
        None => devices::open_default()?,
    };
    let tokens = match arguments.next() {
        Some(file) => Tokens::bytes(file)?,
        None => Tokens::sample(),
    };
    let source = tokens.name.clone();
    let (train, test) = TokenWindows::parts(tokens, LENGTH, Question::Next)?;
    let bigram = bigram_loss(&train, &test);
    let recipe = Recipe::from(Adam::adamw()).without_decay_on_vectors().clip_norm(1.0);
    let (train, test) = (Arc::new(train), Arc::new(test));
    let request = PlanRequest {
        evaluate_items: Some(test.items()),
        predict_items: Some(1),
        ..PlanRequest::new(&MODEL, &recipe, BATCH, BUDGET_BYTES)
    };
    let mut trainer = Trainer::new(&request, &*device, 0)?;
    println!(
        "{source} on {}: peak {} of {BUDGET_BYTES} bytes",
        device.description().name,
        trainer.plan().peak_bytes
    );
    let begin = Instant::now();
    let mut batches = Batches::training(train, BATCH, 0, 0)?;
    let schedule = Schedule {
        warmup_steps: 50,
        total_steps: EPOCHS * batches.batches_per_epoch() as u64,
        decay: Decay::Cosine { floor: 0.05 },
    };
    let mut loss = f64::INFINITY;
    for epoch in 0..EPOCHS {
        batches.start_epoch(epoch)?;
        while let Some(items) = batches.next() {
            let rate = LEARNING_RATE * schedule.factor(trainer.steps() + 1);
            trainer.train_step(&items.batch(), rate)?;
            batches.recycle(items);
        }
        trainer.begin_evaluation()?;
        for items in Batches::evaluation(test.clone(), trainer.evaluation_items()?)? {
            trainer.evaluate_batch(&items.batch(), items.count)?;
        }
        loss = trainer.end_evaluation()?.loss;
        let seconds = begin.elapsed().as_secs_f64();
        println!("epoch {}: test loss {loss:.3} nats a byte after {seconds:.0} s", epoch + 1);
        println!("{}\n", sample(&mut trainer, "\nFrom", epoch)?);
    }
    println!("test loss {loss:.3}, of a table of pairs {bigram:.3}");
    ensure!(trainer.ledger().peak_bytes <= BUDGET_BYTES, "the line does not hold");
    ensure!(loss < bigram, "a loss below that of the table was expected");
    Ok(())
}

/// Text that goes on from a prompt, byte after byte.
fn sample(trainer: &mut Trainer, prompt: &str, seed: u64) -> Result<String> {
    let mut text: Vec<i32> = prompt.bytes().map(i32::from).collect();
    let mut stream = Stream::new(seed, 0);
    for _ in 0..SAMPLE_BYTES {
        let seen = &text[text.len().saturating_sub(LENGTH)..];
        let last = seen.len() - 1;
        let mut window = seen.to_vec();
        // What stands behind a byte does not matter to it.
        window.resize(LENGTH, 0);
        let batch = Batch::from([("tokens", bytemuck::cast_slice(&window))]);
        let (_, logits) = trainer.predict(&batch)?;
        let row = &logits[last * MODEL.vocabulary..][..MODEL.vocabulary];
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        let weights: Vec<f32> = row.iter().map(|x| ((x - largest) / TEMPERATURE).exp()).collect();
        let mut left = stream.next_unit() * weights.iter().sum::<f32>();
        let next = weights.iter().position(|w| {
            left -= w;
            left <= 0.0
        });
        text.push(next.unwrap_or(0) as i32);
    }
    let bytes: Vec<u8> = text.iter().map(|t| *t as u8).collect();
    Ok(String::from_utf8_lossy(&bytes).trim().to_string())
}
