//! Runs a plan's parts node by node in the arena.

use std::sync::Arc;
use std::time::Instant;

use plimsoll_core::backend::{Executor, OpTime};
use plimsoll_core::launch::StorageId;
use plimsoll_core::ledger::Ledger;
use plimsoll_core::plan::Plan;
use plimsoll_core::{Error, Result};

use crate::arena::Arena;
use crate::ops::Task;

/// A plan loaded on the CPU.
pub struct CpuExecutor {
    plan: Arc<Plan>,
    arena: Arena,
    pool: Arc<rayon::ThreadPool>,
    /// For each part, its nodes ready to run.
    tasks: Vec<Vec<Task>>,
    poison: bool,
}

/// NaN as f32, and a value no index or count would have.
const POISON: u8 = 0xff;

impl CpuExecutor {
    pub fn new(
        plan: Arc<Plan>,
        ledger: &Ledger,
        pool: Arc<rayon::ThreadPool>,
        poison: bool,
    ) -> Result<Self> {
        let arena = Arena::new(Arc::clone(&plan), ledger)?;
        let tasks = plan
            .parts
            .iter()
            .map(|part| part.nodes.iter().map(|n| Task::new(n, &arena)).collect())
            .collect();
        let executor = CpuExecutor { plan, arena, pool, tasks, poison };
        if poison {
            (0..executor.plan.storages.len()).for_each(|s| executor.spoil(s));
        }
        Ok(executor)
    }

    fn spoil(&self, storage: StorageId) {
        // SAFETY: no task runs.
        unsafe { self.arena.storage(storage).write::<u8>() }.fill(POISON);
    }

    fn upload(&self, uploads: &[(StorageId, &[u8])]) -> Result<()> {
        for (storage, data) in uploads {
            // SAFETY: no task runs.
            let target = unsafe { self.arena.storage(*storage).write::<u8>() };
            if data.len() > target.len() {
                return Err(self.wrong_size(*storage, data.len()));
            }
            target[..data.len()].copy_from_slice(data);
            target[data.len()..].fill(0);
        }
        Ok(())
    }

    fn wrong_size(&self, storage: StorageId, bytes: usize) -> Error {
        let s = &self.plan.storages[storage];
        let message = format!("{bytes} bytes do not fit into {}", s.bytes);
        Error::Input { name: s.name.clone(), message }
    }

    fn run_node(&self, part: usize, node: usize) {
        self.tasks[part][node].run(&self.pool);
        if self.poison {
            self.plan.parts[part].nodes[node].frees.iter().for_each(|s| self.spoil(*s));
        }
    }

    fn range(
        &self,
        storage: StorageId,
        offset_bytes: u64,
        len: usize,
    ) -> Result<std::ops::Range<usize>> {
        let start = offset_bytes as usize;
        if start + len > self.plan.storages[storage].bytes as usize {
            return Err(self.wrong_size(storage, start + len));
        }
        Ok(start..start + len)
    }
}

impl Executor for CpuExecutor {
    fn write(&mut self, storage: StorageId, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let range = self.range(storage, offset_bytes, data.len())?;
        // SAFETY: no task runs.
        let target = unsafe { self.arena.storage(storage).write::<u8>() };
        target[range].copy_from_slice(data);
        Ok(())
    }

    fn run(&mut self, part: usize, uploads: &[(StorageId, &[u8])]) -> Result<()> {
        self.upload(uploads)?;
        let this = &*self;
        this.pool.install(|| (0..this.tasks[part].len()).for_each(|n| this.run_node(part, n)));
        Ok(())
    }

    fn read(&mut self, storage: StorageId, offset_bytes: u64, out: &mut [u8]) -> Result<()> {
        let range = self.range(storage, offset_bytes, out.len())?;
        // SAFETY: no task runs.
        out.copy_from_slice(&unsafe { self.arena.storage(storage).read::<u8>() }[range]);
        Ok(())
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }

    fn profile(&mut self, part: usize, uploads: &[(StorageId, &[u8])]) -> Result<Vec<OpTime>> {
        self.upload(uploads)?;
        let this = &*self;
        Ok(this.pool.install(|| {
            (0..this.tasks[part].len())
                .map(|node| {
                    let start = Instant::now();
                    this.run_node(part, node);
                    OpTime { part, node, seconds: start.elapsed().as_secs_f64() }
                })
                .collect()
        }))
    }
}
