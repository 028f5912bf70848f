//! The arena's memory, and the only place where its bytes become slices.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use plimsoll_core::launch::StorageId;
use plimsoll_core::ledger::{Grant, Ledger};
use plimsoll_core::ops::Operand;
use plimsoll_core::plan::Plan;
use plimsoll_core::{Error, Result};

/// Alignment of pages and of tensors in them.
pub const ALIGNMENT: usize = 256;

struct Page {
    start: NonNull<u8>,
    layout: Layout,
    _grant: Grant,
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `Arena::new`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// All pages of a plan. Memory is reached through raw pointers, since tensors
/// computed in place are read and written at once.
pub struct Arena {
    pages: Vec<Page>,
    plan: Arc<Plan>,
}

// SAFETY: the pages are plain memory owned by the arena; who touches which
// range when is settled by the plan, whose checker proves that tensors live at
// one time do not overlap.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// A tensor's memory: pointer and number of elements.
#[derive(Clone, Copy)]
pub struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: a `Memory` is a place in the arena, see there.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Arena {
    /// Requests and allocates the pages, zeroed.
    pub fn new(plan: Arc<Plan>, ledger: &Ledger) -> Result<Arena> {
        let mut pages = Vec::new();
        for request in &plan.requests {
            let refused = || Error::OutOfMemory {
                device: "cpu".into(),
                what: request.what.clone(),
                request_bytes: request.bytes,
            };
            let grant = ledger.request("cpu", request)?;
            let size = usize::try_from(request.bytes).map_err(|_| refused())?;
            let layout = Layout::from_size_align(size.max(1), ALIGNMENT).map_err(|_| refused())?;
            // SAFETY: the layout's size is not zero.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
            pages.push(Page { start, layout, _grant: grant });
        }
        Ok(Arena { pages, plan })
    }

    /// The memory of a storage.
    pub fn storage(&self, id: StorageId) -> Memory {
        let s = &self.plan.storages[id];
        let page = &self.pages[s.page];
        let (offset, bytes) = (s.offset_bytes as usize, s.bytes as usize);
        assert!(offset + bytes <= page.layout.size(), "the plan was checked");
        // SAFETY: just checked to lie within the page.
        Memory { start: unsafe { page.start.as_ptr().add(offset) }, bytes }
    }

    /// The memory of a tensor.
    pub fn tensor(&self, operand: &Operand) -> Memory {
        let memory = self.storage(operand.storage);
        let bytes = operand.tensor.numel() * operand.tensor.dtype.size_bytes();
        assert!(bytes <= memory.bytes, "the plan was checked");
        Memory { bytes, ..memory }
    }
}

impl Memory {
    /// Its address.
    pub fn as_ptr<T>(self) -> *mut T {
        self.start.cast()
    }

    /// Number of elements of type `T`.
    pub fn len<T>(self) -> usize {
        self.bytes / size_of::<T>()
    }

    /// All of it for reading.
    ///
    /// # Safety
    /// Nobody may write to the range while the slice is in use.
    pub unsafe fn read<'a, T: bytemuck::Pod>(self) -> &'a [T] {
        // SAFETY: in the arena, aligned to 256, of any bit pattern.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len::<T>()) }
    }

    /// All of it for writing.
    ///
    /// # Safety
    /// Nobody else may touch the range while the slice is in use.
    pub unsafe fn write<'a, T: bytemuck::Pod>(self) -> &'a mut [T] {
        // SAFETY: in the arena, aligned to 256, of any bit pattern.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.len::<T>()) }
    }

    /// A part of it, in elements.
    ///
    /// # Safety
    /// As [`Memory::write`], for that part.
    pub unsafe fn write_part<'a, T: bytemuck::Pod>(self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start + len <= self.len::<T>());
        // SAFETY: just checked to be within the memory.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr::<T>().add(start), len) }
    }
}
