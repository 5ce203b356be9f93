//! The `backtrail` binary.

/// Many small allocations from several threads: the walk is a third faster than with
/// the system's allocator, and memory goes back sooner. Without huge pages: each of them
/// is cleared whole on its first touch, which was a third of a short command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    backtrail_cli::main()
}
