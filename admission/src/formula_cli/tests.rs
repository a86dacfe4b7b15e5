//! As people use it.

use super::*;

fn run(words: &[&str]) -> String {
    let argv = ["admission", "formula"]
        .into_iter()
        .chain(words.iter().copied())
        .map(OsString::from);
    match asked(argv).unwrap().answer() {
        Ok(answer) => answer,
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn a_formula_is_evaluated() {
    for (words, expected) in [
        (&["max(cpu*50%, 50m)", "--cpu", "200m"][..], "100m"),
        (&["memory*33%", "--memory=1Gi"], "354334801920m"),
        (&["50% * 200"], "100"),
        (
            &["cpu*50%"],
            "error: cpu*50%\n^^^ undefined variable: cpu\nsay what it stands for: --cpu QUANTITY",
        ),
        (
            &["cpus*2", "--cpu=1"],
            "error: cpus*2\n^^^^ undefined variable: cpus\nformulas know cpu and memory",
        ),
        (
            &["cpu*50% +", "--cpu=1"],
            "error: cpu*50% +\n         ^ expected a number, a quantity, a variable, max, min, \"(\" or \"-\", found the end",
        ),
        (
            &["cpu - 2", "--cpu=1"],
            "error: cpu - 2\n^^^^^^^ calculation result is negative: -1\nin a SidecarSet, a pod with this result is refused; \
             write max(…, 0)",
        ),
        (&["-cpu + 3", "--cpu=1"], "2"),
    ] {
        assert_eq!(run(words), expected, "{words:?}");
    }
}

#[test]
fn other_command_lines_are_the_daemons() {
    for line in ["admission", "admission --v=4", "admission --formula formula"] {
        assert!(asked(line.split(' ').map(OsString::from)).is_none(), "{line}");
    }
}

#[test]
fn a_formula_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f.svg");
    let plot = format!("--plot={}", file.display());
    let picture = run(&["max(0, min(cpu*50%, 2))", &plot, "--to", "8"]);
    let lines: Vec<_> = picture.lines().collect();
    assert_eq!(lines[0], "max(0, min(cpu*50%, 2))");
    assert!(lines[1].starts_with("2 |"), "{picture}");
    assert!(lines[1].ends_with("''''"), "the upper half is flat: {picture}");
    assert!(lines[16].starts_with("0 |"), "{picture}");
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(
        svg.starts_with("<svg xmlns") && svg.contains("max(0, min(cpu*50%, 2))"),
        "{svg}"
    );
    assert_eq!(svg.matches('M').count(), 6, "one curve without a gap: {svg}");
    assert_eq!(
        run(&["cpu", &plot, "--from=2", "--to=1"]),
        "error: --from has to be less than --to"
    );
    let negative = run(&["cpu - 4", &plot]);
    assert!(
        negative.lines().nth(16).unwrap().trim_end().len() > 30,
        "nothing where it is negative: {negative}"
    );
    assert!(run(&["cpu*cpu", &plot]).contains("multiplication of two quantities"));
}

const POD: &str = "
metadata: {name: web}
spec:
  containers:
  - {name: app, resources: {limits: {cpu: 200m, memory: 400Mi}, requests: {cpu: 100m}}}
";

fn explained(set: &str, vpa: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let mut words = vec![
        format!("--pod={}", write("pod.yaml", POD)),
        format!("--sidecarset={}", write("set.yaml", set)),
    ];
    words.extend(vpa.map(|vpa| format!("--vpa={}", write("vpa.yaml", vpa))));
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn set(policy: &str) -> String {
    format!(
        "
metadata: {{name: log}}
spec:
  initContainers: [{{name: mesh, restartPolicy: Always, resources: {{limits: {{cpu: 1}}}}}}]
  containers: [{{name: agent, resourcesPolicy: {policy}}}]
"
    )
}

#[test]
fn sets_are_explained() {
    let half = set(
        "{targetContainersMode: sum, resourcesExpr: {limits: {cpu: cpu*50%}, requests: {memory: memory*25%}}}",
    );
    assert_eq!(
        explained(&half, None).trim_end(),
        "app: requests cpu 100m, memory 400Mi; limits cpu 200m, memory 400Mi
agent: requests cpu 100m, memory 100Mi; limits cpu 100m, memory -
  cpu limit 100m from cpu*50% of 200m (SidecarSet log)
  memory request 100Mi from memory*25% of 400Mi (SidecarSet log)
mesh: requests cpu 1, memory -; limits cpu 1, memory -"
    );
    let vpa = "
metadata: {name: web}
status: {recommendation: {containerRecommendations: [{containerName: app, target: {cpu: 300m}}]}}
";
    assert!(explained(&half, Some(vpa)).contains("cpu limit 300m from cpu*50% of 600m (SidecarSet log)"));
    let wrong =
        set("{targetContainersMode: sum, resourcesExpr: {requests: {cpu: cpu - 1, memory: memory*}}}");
    assert_eq!(
        explained(&wrong, None).trim_end(),
        "app: requests cpu 100m, memory 400Mi; limits cpu 200m, memory 400Mi
agent: requests cpu -, memory -; limits cpu -, memory -
  formula of SidecarSet log NOT applied: failed to evaluate CPU requests expression: failed to parse expression \"cpu - 1\": \
         calculation result is negative: -900m
    cpu - 1
    ^^^^^^^ calculation result is negative: -900m
  memory requests: wrong whatever the pod:
    memory*
           ^ expected a number, a quantity, a variable, max, min, \"(\" or \"-\", found the end
mesh: requests cpu 1, memory -; limits cpu 1, memory -
where sidecars are injected by SidecarSet log, this pod is refused"
    );
}
