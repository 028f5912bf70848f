//! Attention on the cpu backend against two plain products of the same flops
//! (scores, and values weighed by them). `cargo bench --bench attention`.
#![allow(missing_docs)]

mod support;

use plimsoll::ops::Attention;
use plimsoll::{Graph, Mode};
use support::{product, seconds, tensor};

fn main() {
    for (batch, length, heads, size, causal) in [
        (8, 128, 4, 32, true),
        (4, 512, 8, 64, false),
        (4, 1024, 12, 64, true),
        (2, 4096, 8, 40, false),
        (2, 1024, 8, 80, false),
        (1, 2048, 16, 128, true),
    ] {
        let shape = [batch, length, heads, size];
        let mut g = Graph::new(Mode::Train);
        let inputs = ["q", "k", "v"].map(|name| tensor(&mut g, name, &shape));
        let mut op = Attention::new(size);
        if causal {
            op = op.causal();
        }
        let [q, k, v] = inputs;
        let y = g.attention(q, k, v, None, op).expect("fine");
        let forward = seconds(g.clone(), &[y]);
        let gradients = plimsoll::autodiff::backward(&mut g, &[(y, q)], &inputs).expect("fine");
        let all: Vec<_> = gradients.into_iter().flatten().chain([y]).collect();
        let both = seconds(g, &all);
        let rows = batch * heads;
        let scores = product(&[rows, length, size], &[rows, length, size], false, true);
        let values = product(&[rows, length, length], &[rows, length, size], false, false);
        // A causal product has half of the terms.
        let share = if causal { 0.5 } else { 1.0 };
        let plain = share * (scores + values);
        println!(
            "{batch}x{length} h{heads} d{size}{}: forward {:.2} ms, two products {:.2} ms, ratio \
             {:.2}; backward {:.2} ms, five products, ratio {:.2}",
            if causal { " causal" } else { "" },
            forward * 1e3,
            plain * 1e3,
            forward / plain,
            (both - forward) * 1e3,
            (both - forward) / (2.5 * plain)
        );
    }
}
