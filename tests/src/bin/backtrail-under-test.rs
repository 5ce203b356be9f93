//! The `backtrail` binary, built by this package so that its tests know its path.

fn main() -> std::process::ExitCode {
    backtrail_cli::main()
}
