//! The conformance tests on every device of this machine, each a test of its
//! own. `VK_DRIVER_FILES` picks software drivers.

use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};
use plimsoll::conformance::{Outcome, tests};

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for description in plimsoll::devices::list().expect("devices can be listed") {
        let device = plimsoll::devices::open(&description.id);
        for test in tests() {
            let name = format!("{} {}: {}", description.id, description.name, test.name);
            let device = device.as_ref().map(Arc::clone).map_err(ToString::to_string);
            trials.push(Trial::test(name.clone(), move || {
                match test.run(&device?) {
                    Outcome::Passed { .. } => Ok(()),
                    // Shown without --nocapture too: nothing is skipped in silence.
                    Outcome::Skipped { why } => {
                        println!("skipped {name}: {why}");
                        Ok(())
                    }
                    Outcome::Failed { message } => Err(message.into()),
                }
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}
