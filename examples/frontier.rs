use plimsoll::models::{Sizes, by_name};
use plimsoll::planner::remat::{self, Problem, Timeline};
use plimsoll::{Device, NullDevice, program};
use std::time::Instant;
fn main() {
    let name = std::env::args().nth(1).unwrap();
    let batch: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let model = by_name(&name, &Sizes::default()).unwrap().model;
    let recipe = plimsoll::optimizers::Adam::adamw().into();
    let device = NullDevice::new(1 << 40);
    let t = Instant::now();
    let parts = program::build(&*model, &recipe, batch, &[batch], &[], None).unwrap();
    println!("build {:?}", t.elapsed());
    let t = Instant::now();
    let problem = Problem::of(&parts[0], device.description());
    println!("problem {:?}, {} tasks", t.elapsed(), problem.tasks.len());
    let t = Instant::now();
    let given = Timeline::given(&problem);
    println!("simulate {:?} peak {} seconds {} floor {}", t.elapsed(), given.peak_bytes, given.seconds, problem.floor_bytes());
    let t = Instant::now();
    let points = remat::frontier(&problem);
    println!("frontier {:?}, {} points", t.elapsed(), points.len());
    let mut last = 2.0;
    for p in &points {
        let r = p.peak_bytes as f64 / given.peak_bytes as f64;
        if r < last - 0.05 {
            println!("{:.3} {:.4} runs {}", r, p.seconds / given.seconds, p.runs.len());
            last = r;
        }
    }
    let p = points.last().unwrap();
    println!("min {:.4} {:.4}", p.peak_bytes as f64 / given.peak_bytes as f64, p.seconds / given.seconds);
}
