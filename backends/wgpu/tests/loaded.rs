//! Loaded plans on every device: memory, uploads, reads, failures. Without a
//! driver there is no device, and these tests have nothing to run on.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use plimsoll_core::backend::{Device, Executor};
use plimsoll_core::dtype::DType;
use plimsoll_core::graph::{Graph, Init, Leaf, Mode};
use plimsoll_core::ledger::{Class, Ledger};
use plimsoll_core::ops::TensorType;
use plimsoll_core::plan::liveness::Layout;
use plimsoll_core::plan::place::place;
use plimsoll_core::plan::verify::verify;
use plimsoll_core::plan::{PartKind, Plan};
use plimsoll_core::program::finish;
use plimsoll_core::{Error, Result};

fn devices() -> Vec<Arc<dyn Device>> {
    (0..plimsoll_wgpu::list().len())
        .map(|i| plimsoll_wgpu::open(i).expect("a listed device opens"))
        .collect()
}

/// A plan of one part from what `build` puts into a graph.
fn plan(device: &dyn Device, build: impl FnOnce(&mut Graph) -> Result<()>) -> Arc<Plan> {
    let mut g = Graph::new(Mode::Train);
    build(&mut g).expect("the graph is sound");
    let program = finish(&g, PartKind::Micro { items: 1 }, &BTreeSet::new()).expect("finishes");
    let layout = Layout::new(&[program], &device.description().capabilities).expect("lays out");
    let plan = place(layout, device.description()).expect("is placed");
    verify(&plan, plan.peak_bytes).expect("is sound");
    Arc::new(plan)
}

fn load(device: &dyn Device, plan: &Arc<Plan>) -> Box<dyn Executor> {
    device.load(plan, &Ledger::new(plan.peak_bytes)).expect("loads")
}

fn storage(plan: &Plan, name: &str) -> usize {
    let input = plan.parts[0].inputs.iter().find(|(n, _)| n == name).map(|(_, o)| o.storage);
    input.unwrap_or_else(|| plan.leaves[name].operand.storage)
}

fn read(executor: &mut dyn Executor, plan: &Plan, name: &str) -> Vec<f32> {
    let mut bytes = vec![0; plan.leaves[name].operand.tensor.bytes() as usize];
    executor.read(storage(plan, name), 0, &mut bytes).expect("can be read");
    bytemuck::pod_collect_to_vec(&bytes)
}

/// `sum += x` for `n` elements, and the input as it came.
fn counter(device: &dyn Device, n: usize) -> Arc<Plan> {
    plan(device, |g| {
        let x = g.input("x", &[n], DType::F32)?;
        let sum = g.leaf("sum", TensorType::f32([n]), Leaf::State(Init::Zeros, Class::State))?;
        let new = g.map(&[sum, x], |v| &v[0] + &v[1])?;
        g.assign(sum, new)
    })
}

/// Two layers forward and the gradient of one: reductions and products.
fn layers(device: &dyn Device) -> Arc<Plan> {
    plan(device, |g| {
        let x = g.input("x", &[65, 130], DType::F32)?;
        let w = g.parameter("w", &[257, 130], Init::Zeros)?;
        let h = g.matmul(x, w, false, true)?;
        let h = g.relu(h)?;
        let back = g.matmul(h, x, true, false)?;
        let gradient = g.leaf(
            "gradient",
            TensorType::f32([257, 130]),
            Leaf::State(Init::Zeros, Class::State),
        )?;
        g.assign(gradient, back)?;
        let mean = g.mean(h, &[0])?;
        let rows =
            g.leaf("mean", TensorType::f32([257]), Leaf::State(Init::Zeros, Class::State))?;
        g.assign(rows, mean)
    })
}

fn noise(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919 % 1013) as f32 - 500.0) / 500.0).collect()
}

#[test]
fn requests_are_the_plans() {
    for device in devices() {
        let plan = layers(&*device);
        let ledger = Ledger::new(plan.peak_bytes);
        let executor = device.load(&plan, &ledger).expect("loads");
        let report = ledger.report();
        assert_eq!(report.held, plan.requests);
        assert_eq!((report.used_bytes, report.peak_bytes), (plan.peak_bytes, plan.peak_bytes));
        drop(executor);
        assert_eq!(ledger.report().used_bytes, 0);
    }
}

#[test]
fn a_refusal_at_any_request_leaves_nothing_behind() {
    for device in devices() {
        let plan = layers(&*device);
        for refused in 0..plan.requests.len() {
            let ledger = Ledger::new(plan.peak_bytes);
            ledger.inject_refusal(refused as u64);
            let error = device.load(&plan, &ledger).err().expect("is refused");
            assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
            assert_eq!(ledger.report().used_bytes, 0);
        }
        let ledger = Ledger::new(plan.peak_bytes - 1);
        let error = device.load(&plan, &ledger).err().expect("is past the line");
        assert!(matches!(error, Error::Ledger { .. }), "{error}");
        assert_eq!(ledger.report().used_bytes, 0);
    }
}

/// The arena starts as zeros, whatever the tuner did to it.
#[test]
fn a_plan_for_another_device_is_refused() {
    for device in devices() {
        let mut other = (*counter(&*device, 5)).clone();
        other.device.capabilities.max_invocations += 1;
        other.device.name = "another".into();
        let ledger = Ledger::new(other.peak_bytes);
        let refused = device.load(&Arc::new(other), &ledger).err();
        let message = refused.expect("is refused").to_string();
        assert!(message.contains("the plan was made for another"), "{message}");
        assert_eq!(ledger.report().requests, 0);
    }
}

#[test]
fn the_arena_starts_as_zeros() {
    for device in devices() {
        for _ in 0..2 {
            let plan = layers(&*device);
            let mut executor = load(&*device, &plan);
            for (id, s) in plan.storages.iter().enumerate() {
                let mut bytes = vec![1; s.bytes as usize];
                executor.read(id, 0, &mut bytes).expect("can be read");
                assert!(bytes.iter().all(|b| *b == 0), "{}", s.name);
            }
        }
    }
}

/// More data than a staging slot or the readback buffer holds, and pieces of
/// a tensor.
#[test]
fn writes_and_reads_of_any_size() {
    for device in devices() {
        let n = 100_003;
        let plan = counter(&*device, n);
        let mut executor = load(&*device, &plan);
        let sum = storage(&plan, "sum");
        let mut expected = noise(n);
        executor.write(sum, 0, bytemuck::cast_slice(&expected)).expect("is written");
        expected[16_383..16_386].copy_from_slice(&[1.0, 2.0, 3.0]);
        executor
            .write(sum, 4 * 16_383, bytemuck::cast_slice(&[1f32, 2.0, 3.0]))
            .expect("is written");
        assert!(read(&mut *executor, &plan, "sum") == expected);
        let mut piece = [0u8; 12];
        executor.read(sum, 4 * 16_384, &mut piece).expect("can be read");
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&piece), expected[16_384..16_387]);
        // A part of a word.
        let mut piece = [0u8; 7];
        executor.read(sum, 4 * 16_383, &mut piece).expect("can be read");
        assert_eq!(piece[..4], 1f32.to_le_bytes());
        // Past the end: an error, and work goes on.
        let past = executor.write(sum, 4 * (n as u64 - 1), &[0; 8]);
        assert!(matches!(past, Err(Error::Input { .. })), "{past:?}");
        let past = executor.read(sum, 4, &mut vec![0; 4 * n]);
        assert!(matches!(past, Err(Error::Input { .. })), "{past:?}");
        assert!(read(&mut *executor, &plan, "sum") == expected);
    }
}

#[test]
fn uploads_fill_words_and_must_fit() {
    for device in devices() {
        let plan = plan(&*device, |g| {
            let bytes = g.input("bytes", &[7], DType::U8)?;
            let floats = g.to_f32(bytes)?;
            let out =
                g.leaf("out", TensorType::f32([7]), Leaf::State(Init::Zeros, Class::State))?;
            g.assign(out, floats)
        });
        let mut executor = load(&*device, &plan);
        let bytes = storage(&plan, "bytes");
        executor.run(0, &[(bytes, &[1, 2, 3, 4, 5, 6, 255])]).expect("runs");
        assert_eq!(
            read(&mut *executor, &plan, "out"),
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 255.0],
            "{}",
            device.description().name
        );
        let error = executor.run(0, &[(bytes, &[0; 9])]).expect_err("does not fit");
        assert!(matches!(error, Error::Input { .. }), "{error}");
        executor.run(0, &[(bytes, &[9; 7])]).expect("runs again");
        assert_eq!(read(&mut *executor, &plan, "out"), [9.0; 7]);
    }
}

/// Many steps without a wait: slots are not overwritten before they are read.
#[test]
fn steps_run_ahead_in_order() {
    for device in devices() {
        let n = 4099;
        let plan = counter(&*device, n);
        let mut executor = load(&*device, &plan);
        let x = storage(&plan, "x");
        for step in 1..=100 {
            let data = vec![step as f32; n];
            executor.run(0, &[(x, bytemuck::cast_slice(&data))]).expect("runs");
        }
        executor.synchronize().expect("all went well");
        assert_eq!(read(&mut *executor, &plan, "sum"), vec![5050.0; n]);
    }
}

/// Two loads, two runs each: the same bits every time.
#[test]
fn runs_repeat_to_the_bit() {
    for device in devices() {
        let plan = layers(&*device);
        let (x, w) = (noise(65 * 130), noise(257 * 130));
        let mut seen: Option<[Vec<f32>; 2]> = None;
        for _ in 0..2 {
            let mut executor = load(&*device, &plan);
            executor.write(storage(&plan, "w"), 0, bytemuck::cast_slice(&w)).expect("is written");
            for _ in 0..2 {
                let upload = (storage(&plan, "x"), bytemuck::cast_slice(&x));
                executor.run(0, &[upload]).expect("runs");
                let now = ["gradient", "mean"].map(|n| read(&mut *executor, &plan, n));
                assert!(now[0].iter().all(|v| v.is_finite()));
                assert!(seen.get_or_insert_with(|| now.clone()) == &now);
            }
        }
    }
}

#[test]
fn profiles_every_node() {
    for device in devices() {
        let plan = layers(&*device);
        let mut executor = load(&*device, &plan);
        let x = noise(65 * 130);
        let upload = (storage(&plan, "x"), bytemuck::cast_slice(&x));
        let times = executor.profile(0, &[upload]).expect("runs");
        let nodes: Vec<usize> = times.iter().map(|t| t.node).collect();
        assert_eq!(nodes, (0..plan.parts[0].nodes.len()).collect::<Vec<_>>());
        assert!(times.iter().all(|t| t.part == 0 && t.seconds > 0.0));
    }
}

#[test]
fn descriptions_are_sound() {
    let list = plimsoll_wgpu::list();
    for (i, d) in list.iter().enumerate() {
        assert_eq!((d.id.as_str(), d.backend.as_str()), (format!("wgpu:{i}").as_str(), "wgpu"));
        assert!(d.page_bytes >= 128 << 20 && d.page_bytes.is_multiple_of(d.alignment_bytes));
        assert!(d.alignment_bytes >= 256 && d.parameter_block_bytes >= 256);
        assert!(d.capabilities.max_bindings >= 8 && d.capabilities.max_invocations >= 256);
        assert!(d.staging_slots == 2 && d.readback_bytes > 0);
    }
    assert_eq!(list.len(), plimsoll_wgpu::list().len());
    let error = plimsoll_wgpu::open(list.len()).err().expect("there are no more");
    assert!(matches!(error, Error::Device { .. }), "{error}");
}

/// Runs one of the ignored tests below in a process of its own.
fn child(test: &str, variables: &[(&str, &str)]) {
    let mut command = Command::new(std::env::current_exe().expect("knows itself"));
    command.args(["--ignored", "--exact", test]).envs(variables.iter().copied());
    let output = command.output().expect("starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn no_driver_no_devices() {
    let nowhere =
        [("VK_DRIVER_FILES", "/nonexistent.json"), ("VK_ICD_FILENAMES", "/nonexistent.json")];
    if cfg!(target_os = "linux") {
        child("child_finds_nothing", &nowhere);
    }
}

#[test]
#[ignore = "run by no_driver_no_devices"]
fn child_finds_nothing() {
    assert_eq!(plimsoll_wgpu::list(), []);
    let error = plimsoll_wgpu::open(0).err().expect("there is none");
    assert!(matches!(error, Error::Device { .. }), "{error}");
}

#[test]
fn the_tuner_keeps_its_choices() {
    if plimsoll_wgpu::list().is_empty() {
        // Written past the capture of passing tests: no skip is silent.
        let _ = writeln!(std::io::stderr(), "skipped: there is no wgpu device");
        return;
    }
    let folder = std::env::temp_dir().join(format!("plimsoll-loaded-{}", std::process::id()));
    let path = folder.to_str().expect("a plain name");
    let files = || -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(&folder).into_iter().flatten();
        entries.map(|e| e.expect("can be listed").path()).collect()
    };
    child("child_loads_layers", &[("PLIMSOLL_CACHE_DIR", path), ("PLIMSOLL_TUNE", "off")]);
    assert_eq!(files().len(), 0);
    child("child_loads_layers", &[("PLIMSOLL_CACHE_DIR", path)]);
    assert!(!files().is_empty());
    files().iter().for_each(|f| std::fs::write(f, b"{]").expect("can be written"));
    child("child_loads_layers", &[("PLIMSOLL_CACHE_DIR", path)]);
    // A folder that cannot be: a file's child.
    let below = files()[0].join("below");
    let below = below.to_str().expect("a plain name");
    child("child_loads_layers", &[("PLIMSOLL_CACHE_DIR", below)]);
    std::fs::remove_dir_all(&folder).expect("can be removed");
}

#[test]
#[ignore = "run by the_tuner_keeps_its_choices"]
fn child_loads_layers() {
    for device in devices() {
        load(&*device, &layers(&*device));
    }
}
