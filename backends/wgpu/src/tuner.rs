//! Choosing a kernel for each product by timing the candidates when a plan is
//! loaded. Choices are cached on disk by device, driver and shader text, so
//! that later runs start at once and repeat them bit for bit.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_core::Result;
use plimsoll_core::device::{DeviceDescription, DeviceKind};
use plimsoll_core::ops::matmul::{Sizes, Variant};
use plimsoll_core::ops::{Matmul, Op, TensorType};
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
    candidates: Vec<Variant>,
    choices: BTreeMap<Key, (Variant, f64)>,
    cached: BTreeMap<String, Variant>,
    enabled: bool,
    spent: Duration,
    changed: bool,
}

impl Tuner {
    /// A tuner for a device, with what the cache knows of it.
    /// `PLIMSOLL_TUNE=off` leaves every choice to the default.
    pub fn new(device: &DeviceDescription) -> Tuner {
        // Drivers that compute on the host's cores gain nothing from
        // workgroup memory; GPUs live on it.
        let order = match device.kind {
            DeviceKind::SoftwareGpu => [Variant::Register, Variant::Subgroup, Variant::Tiled],
            _ => [Variant::Tiled, Variant::Register, Variant::Subgroup],
        };
        let supported = |v: &Variant| v.supported(&device.capabilities);
        Tuner {
            candidates: order.into_iter().filter(supported).collect(),
            choices: BTreeMap::new(),
            cached: cache_file(device).and_then(read).unwrap_or_default(),
            enabled: std::env::var_os("PLIMSOLL_TUNE").is_none_or(|v| v != "off"),
            spent: Duration::ZERO,
            changed: false,
            device: device.clone(),
        }
    }

    /// Chooses for a key: from the cache, else by `time`, which gives seconds.
    /// A candidate whose first run uses up the patience is still compared, but
    /// is the last.
    pub fn tune(&mut self, key: Key, mut time: impl FnMut(Variant) -> Result<f64>) -> Result<()> {
        let known = self.cached.get(&key.text()).copied();
        if let Some(variant) = known.filter(|v| self.candidates.contains(v)) {
            self.choices.insert(key, (variant, 0.0));
            return Ok(());
        }
        if !self.enabled || self.candidates.len() < 2 {
            return Ok(());
        }
        let start = Instant::now();
        let mut best: Option<(Variant, f64)> = None;
        for variant in self.candidates.clone() {
            if self.spent + start.elapsed() > PATIENCE {
                break;
            }
            let seconds = time(variant)?;
            if best.is_none_or(|(_, b)| seconds < b) {
                best = Some((variant, seconds));
            }
        }
        self.spent += start.elapsed();
        if let Some(best) = best {
            self.choices.insert(key, best);
            self.changed = true;
        }
        Ok(())
    }

    /// The choice for a key: its own, else that of the tuned product with the
    /// same transposes and the most similar amount of arithmetic, else the
    /// device's default.
    pub fn choice(&self, key: Key) -> Variant {
        if let Some((variant, _)) = self.choices.get(&key) {
            return *variant;
        }
        let distance = |k: &Key| (k.flops() / key.flops()).ln().abs();
        let alike = self.choices.iter().filter(|(k, _)| k.transposed == key.transposed);
        let nearest = alike.min_by(|(a, _), (b, _)| distance(a).total_cmp(&distance(b)));
        nearest.map_or(self.candidates[0], |(_, (variant, _))| *variant)
    }

    /// Whether timing has written to the arena.
    pub fn used_arena(&self) -> bool {
        self.changed
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
        if !self.changed {
            return;
        }
        let mut all = self.cached.clone();
        all.extend(self.choices.iter().map(|(k, (v, _))| (k.text(), *v)));
        if let Some(file) = cache_file(&self.device) {
            let _ = write(file, &all);
        }
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
    let text = format!("{}\n{}\n{}{shaders}", device.name, device.driver, source::PRELUDE);
    Some(folder.join(format!("matmul-{:08x}.json", name_stream(&text))))
}

/// What a cache file holds; `None` where it is missing or makes no sense.
fn read(file: PathBuf) -> Option<BTreeMap<String, Variant>> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Writes beside the file and renames, so that readers never see half of it.
fn write(file: PathBuf, choices: &BTreeMap<String, Variant>) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension(format!("{}.tmp", std::process::id()));
    let mut out = std::fs::File::create(&beside)?;
    out.write_all(&serde_json::to_vec_pretty(choices)?)?;
    out.sync_all()?;
    std::fs::rename(beside, file)
}
