//! `explain` agrees with what a capture does, and says why.

use serde_json::json;

use crate::sandbox;

#[test]
fn cap_075_explain_names_file_line_rule_and_ancestor() {
    let mut s = sandbox();
    let store = s.path("history");
    s.env("BACKTRAIL_MAX_FILE", "1000").env("BACKTRAIL_STORE", store);
    s.write(".backtrailignore", "# rules\n*.log\nbuild/\n!keep.log\n");
    s.write("sub/.backtrailignore", "local\n");
    s.write("env/pyvenv.cfg", "");
    for path in
        ["a.log", "keep.log", "build/x", "sub/local", "src/.env", "node_modules/m.js", "env/x"]
    {
        s.write(path, "x\n");
    }
    s.write("big", vec![0; 2000]);
    s.write("plain", "x\n");
    let rule = |file: &str, line: u32| (Some(file.to_owned()), Some(line));
    let none = (None, None);
    let want = [
        ("a.log", "excluded", "rule", rule(".backtrailignore", 2), "a.log"),
        ("keep.log", "stored", "negated", rule(".backtrailignore", 4), "keep.log"),
        ("build/x", "excluded", "rule", rule(".backtrailignore", 3), "build"),
        ("sub/local", "excluded", "rule", rule("sub/.backtrailignore", 1), "sub/local"),
        ("src/.env", "skipped", "secret", none.clone(), "src/.env"),
        ("node_modules/m.js", "excluded", "default", none.clone(), "node_modules"),
        ("env/x", "excluded", "marker", none.clone(), "env"),
        ("big", "skipped", "too-large", none.clone(), "big"),
        ("history", "excluded", "always", none.clone(), "history"),
        (".git/config", "excluded", "always", none.clone(), ".git"),
    ];
    s.run(["capture"]);
    for (path, decision, reason, (file, line), at) in want {
        let row = s.ok(["explain", path])["paths"][0].clone();
        assert_eq!(row["decision"], decision, "{row}");
        assert_eq!(row["reason"], reason, "{row}");
        assert_eq!((&row["file"], &row["line"]), (&json!(file), &json!(line)), "{row}");
        assert_eq!(row["decided_at"], at, "{row}");
    }
    let plain = s.ok(["explain", "plain", "gone/", "build/"]);
    assert_eq!(plain["paths"][0]["decision"], "stored");
    assert_eq!(plain["paths"][1]["decision"], "stored");
    assert_eq!(plain["paths"][2]["decision"], "excluded");
    s.run(["explain", "../elsewhere"]).expect(2);
    let out = s.run(["explain", "build/x"]).expect(0).out();
    assert!(
        out.contains(".backtrailignore:3: build/") && out.contains("decided at build"),
        "{out}"
    );
}
