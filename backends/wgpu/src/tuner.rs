//! Choosing a kernel for each product by timing the candidates when a plan is
//! loaded. Choices are cached on disk by device, driver and shader text, so
//! that later runs start at once.
//!
//! All matmul kernels add up in one order, so that choices change no bits
//! (`tests/kernels.rs` holds them to it).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_core::Result;
use plimsoll_core::device::{DeviceDescription, DeviceKind};
use plimsoll_core::ops::matmul::{Sizes, Variant};
use plimsoll_core::ops::{LinearCrossEntropy, Matmul, Op, TensorType};
use plimsoll_core::philox::name_stream;
use plimsoll_core::plan::{Plan, PlannedNode, types};

use crate::source;

/// Runs of a candidate: the first is not counted, since it compiles.
pub const RUNS: usize = 4;

/// Time after which no further candidate is tried. What is left takes the
/// choice of the most similar product.
const PATIENCE: Duration = Duration::from_millis(1200);

/// What a choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Sizes of the product.
    pub sizes: Sizes,
    /// Which operands are stored transposed.
    pub transposed: [bool; 2],
}

impl Key {
    /// The key of a product with these operands.
    pub fn of(op: &Matmul, inputs: &[TensorType]) -> Key {
        Key { sizes: op.sizes(inputs), transposed: [op.transpose_a, op.transpose_b] }
    }

    /// The key of the logits of a chunk: its products are not timed, but take
    /// what is likeliest for their size.
    pub fn of_chunk(op: &LinearCrossEntropy, node: &PlannedNode) -> Key {
        let e = op.extents(&types(&node.inputs));
        let sizes = Sizes { batch: 1, m: e.chunk_rows, n: e.classes, k: e.width };
        Key { sizes, transposed: [false, true] }
    }

    fn flops(&self) -> f64 {
        let s = self.sizes;
        2.0 * s.batch as f64 * s.m as f64 * s.n as f64 * s.k as f64
    }

    fn text(&self) -> String {
        let s = self.sizes;
        let t = |on| if on { "t" } else { "n" };
        let [a, b] = self.transposed;
        format!("{}x{}x{}x{}{}{}", s.batch, s.m, s.n, s.k, t(a), t(b))
    }
}

/// The products of a plan, each key once with a node that has it, the most
/// arithmetic first.
pub fn keys(plan: &Plan) -> Vec<(Key, &PlannedNode)> {
    let mut found: BTreeMap<Key, &PlannedNode> = BTreeMap::new();
    for node in plan.parts.iter().flat_map(|p| &p.nodes) {
        if let Op::Matmul(op) = &node.op {
            found.entry(Key::of(op, &types(&node.inputs))).or_insert(node);
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|(a, _), (b, _)| b.flops().total_cmp(&a.flops()).then(a.cmp(b)));
    found
}

/// The choices for one device.
pub struct Tuner {
    device: DeviceDescription,
    choices: BTreeMap<Key, (Variant, f64)>,
    cached: BTreeMap<String, Variant>,
    /// Keys whose candidates have all been timed: these are worth caching.
    settled: BTreeSet<Key>,
    enabled: bool,
    spent: Duration,
    timed: bool,
}

impl Tuner {
    /// A tuner for a device, with what the cache knows of it.
    /// `PLIMSOLL_TUNE=off` leaves every choice to the default.
    pub fn new(device: &DeviceDescription) -> Tuner {
        let enabled = std::env::var_os("PLIMSOLL_TUNE").is_none_or(|v| v != "off");
        let cached = || cache_file(device).and_then(|f| read(&f)).unwrap_or_default();
        Tuner {
            choices: BTreeMap::new(),
            cached: if enabled { cached() } else { BTreeMap::new() },
            settled: BTreeSet::new(),
            enabled,
            spent: Duration::ZERO,
            timed: false,
            device: device.clone(),
        }
    }

    /// What may be best for a key, the likeliest first.
    fn candidates(&self, key: &Key) -> Vec<Variant> {
        let Sizes { batch, m, n, .. } = key.sizes;
        let order: &[Variant] = match self.device.kind {
            // Drivers that compute on the host's cores pay for barriers and
            // gain nothing from workgroup memory: tiles are out of the race.
            DeviceKind::SoftwareGpu if n < 64 => &[Variant::Register, Variant::Subgroup],
            DeviceKind::SoftwareGpu => &[Variant::Subgroup, Variant::Register],
            // GPUs live on workgroup memory, once there are tiles to share out.
            _ if batch * m * n < 64 * 64 => &[Variant::Register, Variant::Tiled, Variant::Subgroup],
            _ => &[Variant::Tiled, Variant::Register, Variant::Subgroup],
        };
        let supported = |v: &Variant| v.supported(&self.device.capabilities);
        order.iter().copied().filter(supported).collect()
    }

    /// Whether there is time to try a key's candidates. A product that takes
    /// seconds must not be run several times only to be chosen for.
    fn has_patience(&self, key: &Key, candidates: usize) -> bool {
        let runs = (RUNS * candidates) as f64;
        let expected = key.flops() / self.device.flops_per_second * runs;
        self.spent.as_secs_f64() + expected < PATIENCE.as_secs_f64()
    }

    /// Chooses for a key: from the cache, else by `time`, which gives seconds.
    /// A candidate whose first run uses up the patience is still compared, but
    /// is the last.
    pub fn tune(&mut self, key: Key, mut time: impl FnMut(Variant) -> Result<f64>) -> Result<()> {
        let candidates = self.candidates(&key);
        let known = self.cached.get(&key.text()).copied();
        if let Some(variant) = known.filter(|v| candidates.contains(v)) {
            self.choices.insert(key, (variant, 0.0));
            return Ok(());
        }
        if !self.enabled || candidates.len() < 2 || !self.has_patience(&key, candidates.len()) {
            return Ok(());
        }
        let start = Instant::now();
        let mut best: Option<(Variant, f64)> = None;
        let mut tried = 0;
        for variant in &candidates {
            if self.spent + start.elapsed() > PATIENCE {
                break;
            }
            self.timed = true;
            let seconds = time(*variant)?;
            tried += 1;
            if best.is_none_or(|(_, b)| seconds < b) {
                best = Some((*variant, seconds));
            }
        }
        self.spent += start.elapsed();
        if let Some(best) = best {
            self.choices.insert(key, best);
        }
        if tried == candidates.len() {
            self.settled.insert(key);
        }
        Ok(())
    }

    /// The choice for a key: its own, else the likeliest.
    pub fn choice(&self, key: Key) -> Variant {
        match self.choices.get(&key) {
            Some((variant, _)) => *variant,
            // Every device runs the register kernel.
            None => self.candidates(&key).first().copied().unwrap_or(Variant::Register),
        }
    }

    /// Whether timing has written to the arena.
    pub fn used_arena(&self) -> bool {
        self.timed
    }

    /// What was chosen, for people.
    pub fn notes(&self) -> Vec<String> {
        let note = |(key, (variant, seconds)): (&Key, &(Variant, f64))| {
            let rate = if *seconds > 0.0 {
                format!("{:.2} GFLOP/s", key.flops() / seconds / 1e9)
            } else {
                "from the cache".to_string()
            };
            format!("matmul {}: {} ({rate})", key.text(), variant.kernel())
        };
        self.choices.iter().map(note).collect()
    }

    /// Adds new choices to the cache. A cache that cannot be written costs
    /// time at the next start and nothing else.
    pub fn store(&self) {
        let Some(file) = cache_file(&self.device) else { return };
        if self.settled.is_empty() {
            return;
        }
        // Another process may have written meanwhile.
        let mut all = self.cached.clone();
        all.extend(read(&file).unwrap_or_default());
        let settled = self.choices.iter().filter(|(k, _)| self.settled.contains(k));
        all.extend(settled.map(|(k, (v, _))| (k.text(), *v)));
        let _ = write(&file, &all);
    }
}

/// The cache file of a device: its name holds device, driver and shaders.
fn cache_file(device: &DeviceDescription) -> Option<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = from("PLIMSOLL_CACHE_DIR")
        .or_else(|| Some(from("XDG_CACHE_HOME")?.join("plimsoll")))
        .or_else(|| Some(from("LOCALAPPDATA")?.join("plimsoll")))
        .or_else(|| Some(from("HOME")?.join(".cache").join("plimsoll")))?;
    let shaders: String = source::SHADERS.iter().map(|(_, text)| *text).collect();
    let (prelude, matmul) = (source::PRELUDE, source::MATMUL);
    let text = format!("{}\n{}\n{prelude}{matmul}{shaders}", device.name, device.driver);
    Some(folder.join(format!("matmul-{:08x}.json", name_stream(&text))))
}

/// What a cache file holds; `None` where it is missing or makes no sense.
fn read(file: &Path) -> Option<BTreeMap<String, Variant>> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Writes beside the file and renames, so that readers never see half of it.
fn write(file: &Path, choices: &BTreeMap<String, Variant>) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension(format!("{}.tmp", std::process::id()));
    let written = std::fs::write(&beside, serde_json::to_vec_pretty(choices)?)
        .and_then(|()| std::fs::rename(&beside, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use plimsoll_core::backend::Device;
    use plimsoll_core::null::NullDevice;

    use super::*;

    /// A tuner that knows nothing and has subgroups.
    fn tuner(kind: DeviceKind) -> Tuner {
        let mut device = NullDevice::new(1 << 20).description().clone();
        device.kind = kind;
        device.capabilities.subgroup_sizes = Some((8, 8));
        Tuner {
            device,
            choices: BTreeMap::new(),
            cached: BTreeMap::new(),
            settled: BTreeSet::new(),
            enabled: true,
            spent: Duration::ZERO,
            timed: false,
        }
    }

    fn key(m: usize, n: usize) -> Key {
        Key { sizes: Sizes { batch: 1, m, n, k: 100 }, transposed: [false, true] }
    }

    #[test]
    fn takes_the_fastest() {
        let mut tuner = tuner(DeviceKind::DiscreteGpu);
        let time = |v| Ok(if v == Variant::Register { 1e-3 } else { 2e-3 });
        tuner.tune(key(512, 512), time).expect("nothing fails");
        assert_eq!(tuner.choice(key(512, 512)), Variant::Register);
        assert!(tuner.used_arena() && tuner.settled.contains(&key(512, 512)));
        assert_eq!(tuner.notes().len(), 1);
        // Not tried: the likeliest.
        assert_eq!(tuner.choice(key(512, 513)), Variant::Tiled);
        assert_eq!(tuner.choice(key(1, 10)), Variant::Register);
    }

    #[test]
    fn software_devices_try_no_tiles() {
        let mut tuner = tuner(DeviceKind::SoftwareGpu);
        let mut tried = Vec::new();
        let time = |v| {
            tried.push(v);
            Ok(1.0)
        };
        tuner.tune(key(256, 512), time).expect("nothing fails");
        assert_eq!(tried, [Variant::Subgroup, Variant::Register]);
        assert_eq!(tuner.choice(key(256, 10)), Variant::Register);
    }

    #[test]
    fn patience_ends() {
        let mut tuner = tuner(DeviceKind::DiscreteGpu);
        let slow = |_| {
            std::thread::sleep(PATIENCE * 2 / 3);
            Ok(1.0)
        };
        tuner.tune(key(512, 512), slow).expect("nothing fails");
        // Cut short: used now, but tried again in a later run.
        assert!(tuner.settled.is_empty());
        tuner.tune(key(512, 513), |_| unreachable!("no patience is left")).expect("skipped");
        // A product of seconds is not tried at all.
        let mut tuner = self::tuner(DeviceKind::SoftwareGpu);
        tuner.device.flops_per_second = 1e9;
        tuner.tune(key(4096, 4096), |_| unreachable!("too large")).expect("skipped");
    }

    #[test]
    fn cached_choices_are_not_tried_again() {
        let mut tuner = tuner(DeviceKind::DiscreteGpu);
        tuner.cached.insert(key(512, 512).text(), Variant::Subgroup);
        tuner.tune(key(512, 512), |_| unreachable!("is known")).expect("known");
        assert_eq!(tuner.choice(key(512, 512)), Variant::Subgroup);
        assert!(!tuner.used_arena());
    }

    #[test]
    fn the_cache_is_optional() {
        let folder = std::env::temp_dir().join(format!("plimsoll-tuner-{}", std::process::id()));
        let file = folder.join("inner").join("matmul.json");
        assert_eq!(read(&file), None);
        let choices = BTreeMap::from([(key(3, 4).text(), Variant::Tiled)]);
        write(&file, &choices).expect("can be written");
        assert_eq!(read(&file), Some(choices.clone()));
        let files = std::fs::read_dir(folder.join("inner")).expect("is there");
        assert_eq!(files.count(), 1, "no draft is left behind");
        std::fs::write(&file, b"{\"1x3x100x4nt\": \"wonder\"}").expect("can be written");
        assert_eq!(read(&file), None);
        // A file where a folder should be.
        assert!(write(&file.join("below"), &choices).is_err());
        std::fs::remove_dir_all(&folder).expect("can be removed");
    }
}
