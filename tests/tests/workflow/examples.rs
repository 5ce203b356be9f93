//! The examples of the documentation.

use std::path::Path;

use backtrail_core::workflow::check::check;

#[test]
fn every_example_workflow_passes_the_check_without_a_warning() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(&dir).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let checked = check(&path.display().to_string(), &std::fs::read(&path).expect("readable"));
        assert!(checked.report.findings().is_empty(), "{}", checked.report.human());
        seen += 1;
    }
    assert!(seen >= 4, "{seen} examples in {}", dir.display());
}
