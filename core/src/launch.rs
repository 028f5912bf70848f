//! What lowering produces: kernels, their parameter blocks, bindings and grids.
//!
//! A [`Launch`] is the same for every GPU backend: the kernel's name finds
//! `shaders/<name>.wgsl` or `kernels/<name>.cu`, constants are put before the
//! source, and [`Body`]s are printed from expressions in the backend's
//! language.

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::expression::Expression;

/// Words of a parameter block; blocks are 256 bytes so that each may be bound
/// at an aligned offset of one uniform buffer on every device.
pub const PARAMETER_WORDS: usize = 64;
/// Bytes of a parameter block.
pub const PARAMETER_BYTES: u64 = 4 * PARAMETER_WORDS as u64;

/// A place in the arena that a launch reads or writes; indexes the plan's
/// storages.
pub type StorageId = usize;

/// A kernel: everything that must be compiled together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Kernel {
    /// File stem of its source.
    pub name: String,
    /// The source of an op of the user's own; none for those in files.
    pub source: Option<String>,
    /// Compile-time `const NAME: u32` definitions.
    pub constants: Vec<(String, u32)>,
    /// Tensors bound, in order. Each gets `load_<name>(i)` and
    /// `store_<name>(i, v)` in the source.
    pub bindings: Vec<Binding>,
    /// Functions printed from expressions.
    pub bodies: Vec<Body>,
}

/// One bound tensor of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// Its name in the source.
    pub name: String,
    /// How its elements are stored.
    pub dtype: DType,
}

/// How a body finds an input's element from the linear output position.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// Element `i`.
    Linear,
    /// Element 0.
    Scalar,
    /// Σ coordinate × stride over the dimensions with a `true` (the others
    /// are repeated).
    Strided(Vec<bool>),
    /// Not read by position; only through `At` and `Random`.
    Whole,
    /// A value that the kernel passes in: the accumulator of an epilogue.
    Argument,
}

/// A function printed from an expression.
///
/// With output bindings it is `fn <name>(i: u32)` and stores them; without, it
/// returns its only output: `fn <name>(i: u32) -> f32`, or
/// `fn <name>(i: u32, argument: f32) -> f32` if an access is
/// [`Access::Argument`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Body {
    /// The function's name in the source.
    pub name: String,
    /// What it computes.
    pub expression: Expression,
    /// For each expression input, which binding holds it (unused for
    /// [`Access::Argument`]).
    pub inputs: Vec<usize>,
    /// For each expression input, how it is indexed.
    pub access: Vec<Access>,
    /// For each expression output, the binding it is stored to; empty for a
    /// function that returns its value.
    pub outputs: Vec<usize>,
    /// Number of dimensions of strided accesses.
    pub rank: usize,
    /// Parameter word where sizes (`rank` words) and then the strides of each
    /// strided input in turn (`rank` words each) start.
    pub parameters_at: usize,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// What runs.
    pub kernel: Kernel,
    /// Workgroups in x, y, z; each within the device's limit.
    pub groups: [u32; 3],
    /// The parameter block, at most [`PARAMETER_WORDS`] words.
    pub parameters: Vec<u32>,
    /// The storage of each binding.
    pub bindings: Vec<StorageId>,
}

/// What lowering must know of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Most workgroups along one dimension.
    pub max_groups: u32,
    /// Most invocations of one workgroup.
    pub max_invocations: u32,
    /// Workgroup (shared) memory in bytes.
    pub workgroup_bytes: u32,
    /// Most storage bindings of a kernel.
    pub max_bindings: usize,
    /// Smallest and largest subgroup size, where subgroup operations exist.
    pub subgroup_sizes: Option<(u32, u32)>,
    /// Host threads that run the ops; `None` on a GPU. They set how much
    /// scratch memory is used at once, never how sums are cut up.
    pub threads: Option<u32>,
}

impl Capabilities {
    /// What every WebGPU device grants: the portable floor.
    pub const PORTABLE: Capabilities = Capabilities {
        max_groups: 65_535,
        max_invocations: 256,
        workgroup_bytes: 16 << 10,
        max_bindings: 8,
        subgroup_sizes: None,
        threads: None,
    };

    /// Folds `groups` workgroups into two dimensions. The kernel's linear
    /// group number is `y · groups_x + x`, and it must check it against its
    /// own count.
    pub fn fold_groups(&self, groups: u64) -> [u32; 3] {
        let x = groups.clamp(1, u64::from(self.max_groups));
        [x as u32, groups.div_ceil(x).max(1) as u32, 1]
    }
}
