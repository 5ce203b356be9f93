//! Small files, no foreign hosts or paths, pinned images.

use crate::source::{files, read};

const MAX_LINES: usize = 400;
/// Files that may be longer than [`MAX_LINES`], each with the reason.
const LONG: &[(&str, &str)] = &[];

/// What may lie in the root; names that begin with a dot may too.
const ROOT: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "backends",
    "benches",
    "cli",
    "core",
    "docker-compose.yml",
    "docs",
    "rustfmt.toml",
    "target",
    "tests",
];

#[test]
fn no_source_file_is_too_long() {
    let mut long = Vec::new();
    for file in files(".") {
        let source = file.ends_with(".rs") || file.ends_with(".sh") || file.ends_with(".py");
        let lines = if source { read(&file).lines().count() } else { 0 };
        let excused = LONG.iter().any(|(name, _)| *name == file);
        if lines > MAX_LINES && !excused {
            long.push(format!("{file}: {lines} lines, at most {MAX_LINES}"));
        }
        assert!(!excused || lines > MAX_LINES, "{file} needs no exception any more");
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn the_root_holds_only_what_is_planned() {
    let mut tops: Vec<String> =
        files(".").iter().map(|f| f.split('/').next().unwrap_or_default().to_owned()).collect();
    tops.dedup();
    tops.retain(|t| !t.starts_with('.') && !ROOT.contains(&t.as_str()));
    assert!(tops.is_empty(), "unplanned in the root: {tops:?}");
}

/// Spelled in two halves, so that this file does not hold them.
const HOSTS: &[(&str, &str)] = &[
    ("crates", ".io"),
    ("pypi", ".org"),
    ("python", "hosted.org"),
    ("npmjs", ".org"),
    ("rubygems", ".org"),
    ("proxy.golang", ".org"),
    ("debian", ".org"),
    ("docker", ".io"),
    ("ghcr", ".io"),
    ("quay", ".io"),
    ("gcr", ".io"),
];
const MACHINE_PATHS: &[(&str, &str)] = &[
    ("/work", "/hub"),
    ("/work", "/h/"),
    ("/work", "/shared"),
    ("/root", "/."),
    ("/home", "/runner"),
];

#[test]
fn no_file_names_a_registry_host_or_a_path_of_one_machine() {
    let mut wrong = Vec::new();
    // Cargo.lock is cargo's own file and always names the registry
    for file in files(".").iter().filter(|f| !f.ends_with("Cargo.lock")) {
        let Ok(text) = std::fs::read_to_string(crate::source::root().join(file)) else { continue };
        for (a, b) in HOSTS.iter().chain(MACHINE_PATHS) {
            let needle = format!("{a}{b}");
            if text.contains(&needle) {
                wrong.push(format!("{file}: names {needle}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The services of a compose file: name → its lines. Two spaces indent a service.
fn services(text: &str) -> Vec<(String, Vec<String>)> {
    let mut out: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in text.lines().filter(|l| !l.trim_start().starts_with('#')) {
        if !line.starts_with(' ') && !line.is_empty() {
            inside = line.starts_with("services:");
        } else if inside && line.starts_with("  ") && !line.starts_with("   ") {
            out.push((line.trim().trim_end_matches(':').to_owned(), Vec::new()));
        } else if let (true, Some((_, body))) = (inside, out.last_mut()) {
            body.push(line.trim().to_owned());
        }
    }
    out
}

#[test]
fn compose_images_are_pinned_and_long_running_services_have_health_checks() {
    let services = services(&read("docker-compose.yml"));
    for wanted in ["minio", "mongo", "nats"] {
        assert!(services.iter().any(|(name, _)| name == wanted), "no service {wanted}");
    }
    for (name, body) in &services {
        let image = body.iter().find_map(|l| l.strip_prefix("image: "));
        let image = image.unwrap_or_else(|| panic!("{name} names no image"));
        let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
        let pinned = tag.contains(|c: char| c.is_ascii_digit()) && !image.contains("latest");
        assert!(pinned, "{name}: image {image} is not pinned");
        let one_shot = body.iter().any(|l| l == "restart: \"no\"");
        let healthy = body.iter().any(|l| l == "healthcheck:");
        assert!(one_shot || healthy, "{name} has no health check");
    }
}

/// Core's own modules that may do what is banned, each with what.
const OPENED: &[(&str, &str)] = &[
    ("core/src/fsx/mod.rs", "disallowed_methods"),
    ("core/src/restore/mod.rs", "disallowed_methods"), // its tests
];

#[test]
fn cap_109_core_is_banned_from_clock_environment_and_output() {
    let lints = read(".clippy.toml");
    for banned in [
        "std::time::SystemTime::now",
        "std::time::Instant::now",
        "std::env::var",
        "std::env::vars",
        "std::env::current_dir",
        "std::print",
        "std::println",
        "std::eprintln",
    ] {
        assert!(lints.contains(&format!("\"{banned}\"")), "{banned} is not banned");
    }
    // Warnings are errors in CI; core takes the bans over and lifts them nowhere else.
    let manifest = read("core/Cargo.toml");
    assert!(manifest.contains("[lints]\nworkspace = true"), "core does not take the lints over");
    let workspace = read("Cargo.toml");
    for lint in ["disallowed_methods = \"warn\"", "disallowed_macros = \"warn\""] {
        assert!(workspace.contains(lint), "{lint} is gone");
    }
    let (mut lifted, mut met) = (Vec::new(), 0);
    for file in files("core/src").iter().filter(|f| f.ends_with(".rs")) {
        for line in read(file).lines().filter(|l| l.contains("clippy::disallowed_")) {
            let known = OPENED.iter().any(|(at, what)| at == file && line.contains(what));
            met += usize::from(known);
            if !known {
                lifted.push(format!("{file}: {line}"));
            }
        }
    }
    assert!(lifted.is_empty(), "{}", lifted.join("\n"));
    assert_eq!(met, OPENED.len(), "an exception is needed no more");
}
