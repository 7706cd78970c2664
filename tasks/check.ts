// Everything that can be checked without running the product. All steps run, also after one has failed.
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { systemClock } from "../src/domain/clock.ts";
import { boundaryProblems } from "./boundaries.ts";
import { completeLock, readLock } from "./package-lock.ts";
import { compareBehaviours } from "./published-behaviours.ts";
import { compareConditions } from "./published-conditions.ts";
import { compareSchemas } from "./published-schemas.ts";
import { npmProgram, pythonProgram, ROOT, runProgram } from "./run-program.ts";
import { readImports } from "./structure.ts";

/** What the caller allows to be rewritten. */
interface Fixes {
  readonly fix: boolean;
  readonly update: boolean;
}

interface Step {
  readonly name: string;
  /** Resolves to what is wrong, or to an empty text. */
  run(fixes: Fixes): Promise<string>;
}

const LINES_MAX = 400;
// Paths of pyproject.toml count from where mypy starts, which is the root here.
const MYPY = ["--no-error-summary", "--cache-dir=.drawbridge/mypy", "border/src", "border/tests"];

async function outputOnFailure(program: string, args: readonly string[]): Promise<string> {
  const { code, output } = await runProgram(program, args, { quiet: true });
  return code === 0 ? "" : output.trim() || `${program} ended with exit code ${code}`;
}

const STEPS: readonly Step[] = [
  { name: "types", run: () => outputOnFailure(npmProgram("tsc"), ["--pretty", "false"]) },
  {
    name: "import boundaries and cycles",
    run: async () =>
      boundaryProblems(readImports(["src", "packages", "lab", "examples", "tasks"])).join("\n"),
  },
  {
    // Formatting, lint, and no ambient time.
    name: "style",
    run: ({ fix }) => {
      const strict = ["--error-on-warnings", "--max-diagnostics=100", "--colors=off"];
      return outputOnFailure(npmProgram("biome"), ["check", ...(fix ? ["--write"] : []), ...strict]);
    },
  },
  { name: "unused code and dependencies", run: () => outputOnFailure(npmProgram("knip"), ["--no-progress"]) },
  {
    name: `at most ${LINES_MAX} lines a source file`,
    async run() {
      return globSync("src/**/*.ts", { cwd: ROOT })
        .map((file) => ({ file, lines: readFileSync(join(ROOT, file), "utf8").split("\n").length - 1 }))
        .filter(({ lines }) => lines > LINES_MAX)
        .map(({ file, lines }) => `${file}: ${lines} lines; give its second concept a file of its own`)
        .join("\n");
    },
  },
  {
    name: "published schemas",
    async run({ update }) {
      return compareSchemas(update)
        .map(
          (file) => `docs/reference/schemas/${file} is not what the sources say; run ./task check --update`,
        )
        .join("\n");
    },
  },
  {
    name: "behaviours and their tests",
    run: async ({ update }) => compareBehaviours(update).join("\n"),
  },
  {
    name: "conditions page",
    run: async ({ update }) => compareConditions(update).join("\n"),
  },
  {
    name: "lock file",
    async run() {
      return completeLock(readLock())
        .map((name) => `package-lock.json lacks ${name}; run ./task lock`)
        .join("\n");
    },
  },
  {
    name: "border module: style and types",
    async run({ fix }) {
      const format = fix ? [] : ["--diff", "--quiet"];
      const found = [
        await outputOnFailure(pythonProgram("ruff"), [
          "check",
          "--quiet",
          ...(fix ? ["--fix"] : []),
          "border",
        ]),
        await outputOnFailure(pythonProgram("ruff"), ["format", ...format, "border"]),
        await outputOnFailure(pythonProgram("mypy"), ["--config-file", "border/pyproject.toml", ...MYPY]),
      ];
      return found.filter((text) => text !== "").join("\n");
    },
  },
  {
    name: "shell and Python syntax",
    async run() {
      const shell = await Promise.all(
        ["task", ".ci/run"].map((file) => outputOnFailure("bash", ["-n", file])),
      );
      const python = globSync("{src,lab,tests}/**/*.py", { cwd: ROOT });
      const parse =
        "import ast, sys\nfor name in sys.argv[1:]: ast.parse(open(name, encoding='utf8').read(), name)";
      if (python.length > 0) shell.push(await outputOnFailure("python3", ["-c", parse, ...python]));
      return shell.filter((text) => text !== "").join("\n");
    },
  },
];

interface StepResult {
  readonly problem: string;
  readonly seconds: number;
}

async function runStep(step: Step, fixes: Fixes): Promise<StepResult> {
  const started = systemClock.now();
  const problem = await step.run(fixes);
  return { problem, seconds: (systemClock.now() - started) / 1000 };
}

export async function check(args: readonly string[]): Promise<number> {
  const fixes: Fixes = { fix: args.includes("--fix"), update: args.includes("--update") };
  // Steps that rewrite files go one after the other, since others read them.
  const concurrent = fixes.fix || fixes.update ? [] : STEPS.map((step) => runStep(step, fixes));
  let failed = 0;
  for (const [index, step] of STEPS.entries()) {
    const { problem, seconds } = await (concurrent[index] ?? runStep(step, fixes));
    process.stdout.write(`${problem === "" ? "ok    " : "FAILED"}  ${step.name} (${seconds.toFixed(1)} s)\n`);
    if (problem === "") continue;
    failed++;
    process.stdout.write(`${problem.replaceAll(/^/gm, "        ")}\n`);
  }
  process.stdout.write(
    failed === 0 ? "All checks passed.\n" : `${failed} of ${STEPS.length} checks failed.\n`,
  );
  return failed === 0 ? 0 : 1;
}
