//! Has Cargo build the crate again when a migration is added: the macro that holds them in the binary only knows those it has read.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
