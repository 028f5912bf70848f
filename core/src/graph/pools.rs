//! Pools and enlargements of planes.

use super::Graph;
use crate::error::{Error, Result};
use crate::ops::{AvgPool, Emit, MaxPool, Op, Pool, Upsample, UpsampleMode, ValueId};

impl Graph {
    /// The largest element of each window over [N, C, …] with one to three
    /// dimensions more.
    pub fn max_pool(&mut self, x: ValueId, pool: &Pool) -> Result<ValueId> {
        Ok(self.emit(Op::MaxPool(MaxPool { pool: pool.clone() }), &[x])?[0])
    }

    /// The mean of each window; padding counts as zeros or not at all.
    pub fn avg_pool(
        &mut self,
        x: ValueId,
        pool: &Pool,
        count_include_pad: bool,
    ) -> Result<ValueId> {
        let op = AvgPool { pool: pool.clone(), count_include_pad };
        Ok(self.emit(Op::AvgPool(op), &[x])?[0])
    }

    /// The mean of each plane of [N, C, …]: [N, C].
    pub fn global_avg_pool(&mut self, x: ValueId) -> Result<ValueId> {
        let rank = self.shape(x).len();
        if rank < 3 {
            let message = format!("shape {:?}, expected [N, C] and more", self.shape(x));
            return Err(Error::shape(self.scoped_name("global_avg_pool"), message));
        }
        let axes: Vec<usize> = (2..rank).collect();
        self.mean(x, &axes)
    }

    /// Enlarges the dimensions behind [N, C] by these factors.
    pub fn upsample(
        &mut self,
        x: ValueId,
        factors: &[usize],
        mode: UpsampleMode,
    ) -> Result<ValueId> {
        let op = Upsample { factors: factors.to_vec(), mode };
        Ok(self.emit(Op::Upsample(op), &[x])?[0])
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::error::Error;
    use crate::graph::{Graph, Mode};

    #[test]
    fn global_means_are_over_planes() {
        let mut g = Graph::new(Mode::Train);
        let x = g.input("x", &[2, 3, 4, 5], DType::F32).expect("fine");
        let y = g.global_avg_pool(x).expect("fine");
        assert_eq!(g.shape(y), [2, 3]);
        assert!(matches!(g.global_avg_pool(y), Err(Error::Shape { .. })));
    }
}
