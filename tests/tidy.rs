//! The rules of ARCHITECTURE.md that a program can check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll::launch::Capabilities;
use plimsoll::ops::cases::cases;
use plimsoll::ops::{LowerContext, Operand};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, ending: &str, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the project").flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|n| n != "target") {
            files(&path, ending, out);
        } else if path.extension().is_some_and(|e| e == ending) {
            out.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn no_file_is_longer_than_800_lines() {
    for folder in ["src", "core", "backends", "shaders", "tests", "demos", "benches"] {
        for ending in ["rs", "wgsl", "py"] {
            let mut found = Vec::new();
            files(&root().join(folder), ending, &mut found);
            for path in found {
                let lines = read(&path).lines().count();
                assert!(lines <= 800, "{} has {lines} lines", path.display());
            }
        }
    }
}

/// Floors of core, the lowest first.
const FLOORS: [&[&str]; 9] = [
    &["dtype", "shape", "philox", "error", "ledger"],
    &["expression", "launch", "device"],
    &["ops"],
    &["graph"],
    &["autodiff", "nn", "optimizers"],
    &["program"],
    &["plan"],
    &["backend", "null"],
    &["trainer"],
];

#[test]
fn core_modules_use_only_lower_floors() {
    let floor = |module: &str| FLOORS.iter().position(|f| f.contains(&module));
    let source = root().join("core/src");
    let mut found = Vec::new();
    files(&source, "rs", &mut found);
    for path in found {
        let relative = path.strip_prefix(&source).expect("below core/src");
        let first = relative.iter().next().and_then(|p| p.to_str()).expect("a name");
        let module = first.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let own = floor(module).unwrap_or_else(|| panic!("{module} stands on no floor"));
        for line in read(&path).lines().filter(|l| !l.trim_start().starts_with("//")) {
            for used in line.split("crate::").skip(1) {
                let used: String =
                    used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let allowed = match floor(&used) {
                    Some(other) => other < own || used == module || (other == own && own == 0),
                    // `crate::Error` and the like are re-exports of floor 1.
                    None => true,
                };
                // Neighbours of a floor may lean on one another in one
                // direction: null on backend, device on launch, launch on
                // expression, optimizers on none.
                let neighbours =
                    [("null", "backend"), ("device", "launch"), ("launch", "expression")];
                let allowed = allowed || neighbours.contains(&(module, used.as_str()));
                assert!(allowed, "{}: uses crate::{used}: {line}", path.display());
            }
        }
    }
}

#[test]
fn crates_depend_one_way() {
    let names = |path: &str| -> BTreeSet<String> {
        let text = read(&root().join(path));
        let lines = text.lines().filter(|l| !l.starts_with("name"));
        lines
            .filter_map(|l| l.split(['.', ' ', '=']).next())
            .filter(|n| n.starts_with("plimsoll"))
            .map(str::to_string)
            .collect()
    };
    assert!(names("core/Cargo.toml").is_empty());
    for backend in ["cpu", "wgpu"] {
        let depends = names(&format!("backends/{backend}/Cargo.toml"));
        assert!(depends.iter().all(|n| n == "plimsoll-core"), "{backend}: {depends:?}");
    }
}

#[test]
fn every_op_and_kernel_has_its_file() {
    for case in cases() {
        let name = case.op.name();
        let operand =
            |i: usize, t: &plimsoll::ops::TensorType| Operand { storage: i, tensor: t.clone() };
        let inputs: Vec<Operand> =
            case.inputs.iter().enumerate().map(|(i, (t, _))| operand(i, t)).collect();
        let types: Vec<_> = case.inputs.iter().map(|(t, _)| t.clone()).collect();
        let outputs = case.op.infer(&types).expect("cases are sound");
        let outputs: Vec<Operand> =
            outputs.iter().enumerate().map(|(i, t)| operand(100 + i, t)).collect();
        let launches = case.op.lower(&LowerContext {
            capabilities: &Capabilities::PORTABLE,
            inputs: &inputs,
            outputs: &outputs,
            workspace: Some(200),
            matmul_variant: None,
        });
        assert!(!launches.is_empty(), "{} lowers to nothing", case.name);
        for launch in launches {
            let shader = root().join("shaders").join(format!("{}.wgsl", launch.kernel.name));
            assert!(shader.exists(), "{} is missing", shader.display());
            assert!(launch.groups.iter().all(|g| (1..=65_535).contains(g)), "{}", case.name);
            assert!(launch.bindings.len() <= Capabilities::PORTABLE.max_bindings, "{}", case.name);
            assert!(launch.parameters.len() <= plimsoll::launch::PARAMETER_WORDS, "{}", case.name);
        }
        // A gradient op stands in its own file or in its forward op's.
        let file = |name: &str| root().join("core/src/ops").join(format!("{name}.rs"));
        let forward = name.trim_end_matches("_gradient");
        assert!(file(name).exists() || file(forward).exists(), "{name} has no file");
    }
}
