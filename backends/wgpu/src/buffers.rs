//! Buffers that the ledger knows, and the staging ring.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::ledger::{Grant, Ledger, Request};
use plimsoll_core::{Error, Result};
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, MapMode, PollType, SubmissionIndex,
};

use crate::device::Shared;

/// A buffer with its grant; both go when it is dropped.
pub struct Held {
    /// The buffer.
    pub buffer: Buffer,
    _grant: Grant,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Free the memory now, not when the last bind group goes.
        self.buffer.destroy();
    }
}

impl Held {
    /// Asks the ledger, then the device.
    ///
    /// wgpu clears a buffer before its first use by a fill on the device
    /// (`initialize_buffer_memory` in wgpu-core), which takes no memory.
    pub fn new(
        shared: &Shared,
        ledger: &Ledger,
        request: &Request,
        usage: BufferUsages,
    ) -> Result<Held> {
        let grant = ledger.request(&shared.description.name, request)?;
        let descriptor = BufferDescriptor {
            label: Some(&request.what),
            size: request.bytes,
            usage,
            mapped_at_creation: false,
        };
        match shared.scoped(|| shared.device.create_buffer(&descriptor)) {
            Ok(buffer) => Ok(Held { buffer, _grant: grant }),
            Err(wgpu::Error::OutOfMemory { .. }) => Err(Error::OutOfMemory {
                device: shared.description.name.clone(),
                what: request.what.clone(),
                request_bytes: request.bytes,
            }),
            Err(e) => Err(shared.error(format!("{}: {e}", request.what))),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Mapping {
    /// Being mapped, or not asked for yet.
    Pending,
    Ready,
    Failed(String),
}

/// A host-visible buffer that is mapped whenever the device does not use it.
struct Slot {
    held: Held,
    mapping: Arc<Mutex<Mapping>>,
    used_by: Option<SubmissionIndex>,
}

impl Slot {
    fn map(&self, mode: MapMode) {
        let mapping = Arc::clone(&self.mapping);
        let set = move |m| *mapping.lock().unwrap_or_else(PoisonError::into_inner) = m;
        set(Mapping::Pending);
        self.held.buffer.map_async(mode, .., move |result| {
            set(match result {
                Ok(()) => Mapping::Ready,
                Err(e) => Mapping::Failed(e.to_string()),
            });
        });
    }

    /// Waits until the slot is mapped.
    fn wait(&self, shared: &Shared) -> Result<()> {
        let state = || self.mapping.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Callbacks run in `poll`: look without waiting first.
        for round in 0..2 {
            if state() == Mapping::Pending {
                let wait = PollType::Wait { submission_index: self.used_by.clone(), timeout: None };
                let poll = if round == 0 { PollType::Poll } else { wait };
                shared.poll(poll)?;
            }
        }
        match state() {
            Mapping::Ready => Ok(()),
            Mapping::Pending => Err(shared.error("a staging buffer did not become ready")),
            Mapping::Failed(e) => {
                Err(shared.error(format!("a staging buffer cannot be mapped: {e}")))
            }
        }
    }
}

/// Staging slots used in turn: while the device reads one, the host fills the
/// next.
pub struct Staging {
    slots: Vec<Slot>,
    next: usize,
}

/// A piece of data and the place in a buffer to which it goes.
pub struct Upload<'a> {
    /// The buffer.
    pub to: &'a Buffer,
    /// First byte there, a multiple of 4.
    pub offset_bytes: u64,
    /// The data.
    pub data: &'a [u8],
    /// Bytes to write, a multiple of 4: past the data's end zeros follow.
    pub bytes: u64,
}

impl Staging {
    /// A ring of slots.
    pub fn new(slots: Vec<Held>) -> Staging {
        let slots = slots
            .into_iter()
            .map(|held| {
                let mapping = Arc::new(Mutex::new(Mapping::Pending));
                let slot = Slot { held, mapping, used_by: None };
                slot.map(MapMode::Write);
                slot
            })
            .collect();
        Staging { slots, next: 0 }
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> u64 {
        self.slots[0].held.buffer.size()
    }

    /// Fills the next slot with all of `uploads`, which together fit a slot,
    /// encodes their copies, lets `then` encode more, and submits.
    pub fn submit(
        &mut self,
        shared: &Shared,
        uploads: &[Upload<'_>],
        then: impl FnOnce(&mut CommandEncoder),
    ) -> Result<()> {
        shared.check()?;
        let mut encoder = shared.device.create_command_encoder(&Default::default());
        let used = !uploads.is_empty();
        let at = self.next;
        if used {
            self.next = (at + 1) % self.slots.len();
            let slot = &self.slots[at];
            slot.wait(shared)?;
            fill(shared, &slot.held.buffer, uploads)?;
            slot.held.buffer.unmap();
            let mut from = 0;
            for u in uploads {
                let buffer = &slot.held.buffer;
                encoder.copy_buffer_to_buffer(buffer, from, u.to, u.offset_bytes, u.bytes);
                from += u.bytes;
            }
        }
        then(&mut encoder);
        let submission = shared.queue.submit([encoder.finish()]);
        if used {
            self.slots[at].used_by = Some(submission);
            self.slots[at].map(MapMode::Write);
        }
        shared.check()
    }
}

fn fill(shared: &Shared, buffer: &Buffer, uploads: &[Upload<'_>]) -> Result<()> {
    let total: u64 = uploads.iter().map(|u| u.bytes).sum();
    let view = buffer.get_mapped_range_mut(..total);
    let mut view =
        view.map_err(|e| shared.error(format!("a staging buffer is not mapped: {e}")))?;
    let mut at = 0;
    for u in uploads {
        let (len, bytes) = (u.data.len(), u.bytes as usize);
        view.slice(at..at + len).copy_from_slice(u.data);
        if bytes > len {
            // At most a word of padding, or the unused end of a short upload.
            view.slice(at + len..at + bytes).copy_from_slice(&vec![0; bytes - len]);
        }
        at += bytes;
    }
    Ok(())
}

/// Copies `out.len()` bytes of `from` to the host through `readback`.
pub fn read(
    shared: &Shared,
    readback: &Held,
    from: &Buffer,
    offset_bytes: u64,
    out: &mut [u8],
) -> Result<()> {
    let piece = readback.buffer.size() as usize;
    for (n, out) in out.chunks_mut(piece).enumerate() {
        let bytes = (out.len() as u64).next_multiple_of(4);
        let mut encoder = shared.device.create_command_encoder(&Default::default());
        let start = offset_bytes + (n * piece) as u64;
        encoder.copy_buffer_to_buffer(from, start, &readback.buffer, 0, bytes);
        shared.queue.submit([encoder.finish()]);
        let failed: Arc<Mutex<Option<String>>> = Arc::default();
        let record = Arc::clone(&failed);
        readback.buffer.map_async(MapMode::Read, ..bytes, move |result| {
            if let Err(e) = result {
                *record.lock().unwrap_or_else(PoisonError::into_inner) = Some(e.to_string());
            }
        });
        shared.wait()?;
        if let Some(e) = failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(shared.error(format!("results cannot be read: {e}")));
        }
        let view = readback.buffer.get_mapped_range(..bytes);
        let view = view.map_err(|e| shared.error(format!("results cannot be read: {e}")))?;
        out.copy_from_slice(&view[..out.len()]);
        drop(view);
        readback.buffer.unmap();
    }
    Ok(())
}
