//! Validates every shader with naga before anything else is compiled, in all
//! combinations of transposes, element types, bodies and kernel variants that
//! the op cases of the core lower to. A shader fault fails the build with
//! naga's message.

use std::collections::HashSet;
use std::path::Path;

use naga::valid::{Capabilities as Allowed, ValidationFlags, Validator};
use plimsoll_core::dtype::DType;
use plimsoll_core::expression::{E, Expression, Scalar};
use plimsoll_core::launch::{Capabilities, Kernel};
use plimsoll_core::ops::cases::cases;
use plimsoll_core::ops::matmul::Variant;
use plimsoll_core::ops::{LowerContext, Map, Matmul, Op, Operand, TensorType};

#[path = "src/source.rs"]
mod source;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shaders");
    for path in ["build.rs", "src/source.rs", "../../shaders"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let mut faults = unlisted(&folder);
    let kernels = kernels();
    for (name, _) in source::SHADERS {
        if !kernels.iter().any(|k| k.name == *name) {
            faults.push(format!("shaders/{name}.wgsl: no op lowers to it"));
        }
    }
    faults.extend(kernels.iter().filter_map(|k| validate(k).err()));
    for fault in &faults {
        for line in fault.lines() {
            println!("cargo::error={line}");
        }
    }
    if !faults.is_empty() {
        std::process::exit(1);
    }
}

/// Files of the folder that no kernel includes.
fn unlisted(folder: &Path) -> Vec<String> {
    let known: HashSet<&str> = source::SHADERS
        .iter()
        .map(|(name, _)| *name)
        .chain(["prelude", "matmul", "pool"])
        .chain(["attention_tiles", "convolution", "convolution_gather", "convolution_tiles"])
        .collect();
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) => return vec![format!("{}: {e}", folder.display())],
    };
    entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "wgsl"))
        .filter(|p| !p.file_stem().and_then(|s| s.to_str()).is_some_and(|s| known.contains(s)))
        .map(|p| format!("{}: src/source.rs does not list it", p.display()))
        .collect()
}

/// Every distinct kernel of the op cases and of some samples beside them.
fn kernels() -> Vec<Kernel> {
    let mut ops: Vec<(Op, Vec<TensorType>)> = cases()
        .into_iter()
        .map(|c| (c.op, c.inputs.into_iter().map(|(t, _)| t).collect()))
        .collect();
    ops.extend(samples());
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    for (op, inputs) in ops {
        for variant in Variant::ALL {
            for kernel in lower(&op, &inputs, variant) {
                if seen.insert(kernel.clone()) {
                    out.push(kernel);
                }
            }
        }
    }
    out
}

/// Ops that no case has: all functions and types in one expression, and
/// epilogues with everything that a fused graph may put there.
fn samples() -> Vec<(Op, Vec<TensorType>)> {
    let x = || E::input(0);
    let functions = x().exp() + x().log() + x().sqrt() + x().rsqrt() + x().sin() + x().cos();
    let functions = functions + x().floor() + x().abs() + x().tanh() + x().erf() - x();
    let infinite = functions.max(f32::NEG_INFINITY).min(f32::INFINITY);
    let types = [DType::F32, DType::U8, DType::I32, DType::U32];
    let mixed = infinite * E::input(1).cast(Scalar::F32)
        + (E::input(2) + E::i32(i32::MIN)).cast(Scalar::F32)
        + E::random(3, 7, 9).unit().pow(E::constant(1e-40));
    let mixed = Expression::new(types.to_vec(), &[mixed, E::input(2).cast(Scalar::U32)]);
    let shapes = [vec![3, 5], vec![5], vec![3, 1], vec![4]];
    let inputs: Vec<TensorType> =
        shapes.into_iter().zip(types).map(|(s, t)| TensorType::new(s, t)).collect();
    let map = Map { expression: mixed, shape: vec![3, 5] };
    let epilogue = (E::input(0) + E::input(1)).tanh() * E::input(2);
    let keep = E::random(3, 1, 5).unit().less(0.5);
    let epilogue = Expression::new(
        vec![DType::F32, DType::F32, DType::F32, DType::U32],
        &[keep.select(epilogue, 0.0)],
    );
    let mut out = vec![(Op::Map(map), inputs)];
    for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
        let op = Matmul { epilogue: epilogue.clone(), ..Matmul::new(ta, tb) };
        let inputs = vec![
            TensorType::f32(if ta { [7, 3] } else { [3, 7] }),
            TensorType::f32(if tb { [5, 7] } else { [7, 5] }),
            TensorType::f32([5]),
            TensorType::f32([3, 1]),
            TensorType::new([4], DType::U32),
        ];
        out.push((Op::Matmul(op), inputs));
    }
    out
}

fn lower(op: &Op, inputs: &[TensorType], variant: Variant) -> Vec<Kernel> {
    let outputs = op.infer(inputs).expect("cases are sound");
    let capabilities =
        Capabilities { subgroup_sizes: Some((4, 128)), ..Capabilities::PORTABLE.clone() };
    let place = |first: usize, types: &[TensorType]| -> Vec<Operand> {
        let place =
            |(i, t): (usize, &TensorType)| Operand { storage: first + i, tensor: t.clone() };
        types.iter().enumerate().map(place).collect()
    };
    let launches = op.lower(&LowerContext {
        capabilities: &capabilities,
        inputs: &place(0, inputs),
        outputs: &place(inputs.len(), &outputs),
        workspace: Some(inputs.len() + outputs.len()),
        matmul_variant: Some(variant),
    });
    launches.into_iter().map(|l| l.kernel).collect()
}

/// Parses and validates a kernel with what its device is sure to have.
fn validate(kernel: &Kernel) -> Result<(), String> {
    let path = format!("shaders/{}.wgsl", kernel.name);
    let text = source::assemble(kernel).map_err(|e| format!("{path}: {e}"))?;
    let module = naga::front::wgsl::parse_str(&text)
        .map_err(|e| e.emit_to_string_with_path(&text, &path))?;
    let allowed = match kernel.name.as_str() {
        "matmul_subgroup" => Allowed::SUBGROUP,
        _ => Allowed::empty(),
    };
    Validator::new(ValidationFlags::all(), allowed)
        .validate(&module)
        .map(|_| ())
        .map_err(|e| e.emit_to_string_with_path(&text, &path))
}
