//! Scratch memory of threads, within the workspace that the plan counts.

use crate::arena::Memory;

/// Workspace of which each thread has its part.
pub struct Scratch {
    pub memory: Option<Memory>,
    /// Where the first thread's part starts, in elements.
    pub first: usize,
    /// Elements of a part.
    pub numel: usize,
}

impl Scratch {
    /// This thread's part.
    ///
    /// # Safety
    /// No other part is taken on this thread while it is in use.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn take(&self) -> &mut [f32] {
        let Some(memory) = self.memory.filter(|_| self.numel > 0) else { return &mut [] };
        let thread = rayon::current_thread_index().unwrap_or(0);
        // SAFETY: threads of a pool have different numbers below their count,
        // for which the workspace was made; `write_part` checks the end.
        unsafe { memory.write_part::<f32>(self.first + thread * self.numel, self.numel) }
    }
}
