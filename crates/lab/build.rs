//! Passes the compiler's version to the reports of benchmarks.

use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let said = Command::new(rustc).arg("--version").output().expect("rustc --version runs");
    let said = String::from_utf8_lossy(&said.stdout);
    let version = said.split_whitespace().nth(1).expect("rustc VERSION (..)");
    println!("cargo:rustc-env=RUSTC_VERSION={version}");
}
