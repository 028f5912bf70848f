//! The demos keep what they promise: each ends in error if its budget, loss or
//! score does not hold.

use std::process::Command;

fn runs(program: &str) -> String {
    let output = Command::new(program).arg("cpu").output().expect("the demo starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {text}{errors}");
    text
}

#[test]
fn char_gpt_beats_a_table_of_pairs() {
    let text = runs(env!("CARGO_BIN_EXE_char_gpt"));
    assert!(text.contains("of a table of pairs"), "{text}");
}

#[test]
fn segment3d_finds_spheres_and_tubes() {
    let text = runs(env!("CARGO_BIN_EXE_segment3d"));
    assert!(text.contains("mean Dice 0.9"), "{text}");
}
