//! Buffers that the ledger knows, and the staging ring.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

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
enum State {
    Pending,
    Ready,
    Failed(String),
}

/// A mapping that was asked for.
struct Mapping(Arc<(Mutex<State>, Condvar)>);

/// How often a mapping is looked for, 10 ms apart, once the device is done.
const LOOKS: usize = 1000;

impl Mapping {
    fn ask(buffer: &Buffer, mode: MapMode, bytes: u64) -> Mapping {
        let cell = Arc::new((Mutex::new(State::Pending), Condvar::new()));
        let set = Arc::clone(&cell);
        buffer.map_async(mode, ..bytes, move |result| {
            *set.0.lock().unwrap_or_else(PoisonError::into_inner) = match result {
                Ok(()) => State::Ready,
                Err(e) => State::Failed(e.to_string()),
            };
            set.1.notify_all();
        });
        Mapping(cell)
    }

    /// Waits until the buffer is mapped; `submission` is the last to use it.
    fn wait(&self, shared: &Shared, submission: Option<&SubmissionIndex>) -> Result<()> {
        let (cell, changed) = &*self.0;
        let lock = || cell.lock().unwrap_or_else(PoisonError::into_inner);
        // Callbacks run within `poll`: look without waiting first.
        if *lock() == State::Pending {
            shared.poll(PollType::Poll)?;
        }
        if *lock() == State::Pending {
            let submission_index = submission.cloned();
            shared.poll(PollType::Wait { submission_index, timeout: None })?;
        }
        // Where several threads poll one device, another of them may hold our
        // callback and not have run it yet.
        let mut state = lock();
        for _ in 0..LOOKS {
            if *state != State::Pending {
                break;
            }
            let pause = Duration::from_millis(10);
            state = changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        match &*state {
            State::Ready => Ok(()),
            State::Pending => Err(shared.error("a buffer did not become ready for the host")),
            State::Failed(e) => Err(shared.error(format!("a buffer cannot be mapped: {e}"))),
        }
    }
}

/// A host-visible buffer that is mapped whenever the device does not use it.
struct Slot {
    held: Held,
    mapping: Mapping,
    used_by: Option<SubmissionIndex>,
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
                let mapping = Mapping::ask(&held.buffer, MapMode::Write, held.buffer.size());
                Slot { held, mapping, used_by: None }
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
            slot.mapping.wait(shared, slot.used_by.as_ref())?;
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
            let slot = &mut self.slots[at];
            slot.used_by = Some(submission);
            let buffer = &slot.held.buffer;
            slot.mapping = Mapping::ask(buffer, MapMode::Write, buffer.size());
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
        let submission = shared.queue.submit([encoder.finish()]);
        let mapping = Mapping::ask(&readback.buffer, MapMode::Read, bytes);
        mapping.wait(shared, Some(&submission))?;
        let view = readback.buffer.get_mapped_range(..bytes);
        let view = view.map_err(|e| shared.error(format!("results cannot be read: {e}")))?;
        out.copy_from_slice(&view[..out.len()]);
        drop(view);
        readback.buffer.unmap();
    }
    Ok(())
}
