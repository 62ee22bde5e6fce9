//! Rebuilds the crate when a migration is added. Cargo does not track the directory that `sqlx::migrate!` embeds.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
