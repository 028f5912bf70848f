//! `linear_cross_entropy` with its gradient on the cpu backend, against the four
//! plain products that it is made of. `cargo bench --bench linear_cross_entropy`.
#![allow(missing_docs)]

mod support;

use plimsoll::graph::Leaf;
use plimsoll::ledger::Class;
use plimsoll::ops::{CrossEntropy, TensorType, ValueId};
use plimsoll::{DType, Graph, Init, Mode, autodiff};
use support::{product, seconds, tensor};

fn main() {
    for [rows, classes, width] in [[1024, 50_257, 768], [512, 10_007, 256]] {
        let logits = product(&[rows, width], &[classes, width], false, true);
        let hidden = product(&[rows, classes], &[classes, width], false, false);
        let columns = product(&[rows, classes], &[rows, width], true, false);
        let products = 2.0 * logits + hidden + columns;
        let mut g = Graph::new(Mode::Train);
        let (h, w) = (tensor(&mut g, "h", &[rows, width]), tensor(&mut g, "w", &[classes, width]));
        let labels = TensorType::new([rows], DType::I32);
        let state = Leaf::State(Init::Zeros, Class::State);
        let labels = g.leaf("labels", labels, state).expect("fine");
        let loss =
            g.linear_cross_entropy(h, w, None, labels, CrossEntropy::default()).expect("fine");
        let seeds = [(loss.per_item, loss.weight)];
        let gradients = autodiff::backward(&mut g, &seeds, &[h, w]).expect("fine");
        let gradients: Vec<ValueId> = gradients.into_iter().flatten().collect();
        let all = seconds(g, &gradients);
        let rate = 8.0 * (rows * classes * width) as f64 / all / 1e9;
        println!(
            "{rows} x {classes} x {width}: {:.1} ms, four products {:.1} ms ({:.1} + {:.1} + {:.1} + {:.1}), ratio {:.3}, {rate:.1} GFLOP/s",
            all * 1e3,
            products * 1e3,
            logits * 1e3,
            logits * 1e3,
            hidden * 1e3,
            columns * 1e3,
            all / products,
        );
    }
}
