// `./task`: the list, and what it installs when. npm, node and python are stand-ins that write down how they
// were called, in a made-up clone; the real installation is what every fresh clone does.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { systemClock } from "../../../src/domain/clock.ts";
import { TASKS } from "../../../tasks/table.ts";
import { type Finished, ROOT, run, start, temporaryFolder, writeFile } from "../../support/temporary.ts";

const TOOLS =
  "awk basename bash cat cp dirname env flock grep mkdir mv ps readlink rm sed sha256sum sleep sort tail uname".split(
    " ",
  );

interface Clone {
  readonly root: string;
  /** What the stand-ins were called with, a line each. */
  calls(): string[];
  task(...args: string[]): Promise<Finished>;
  readonly env: Record<string, string>;
  replace(program: string, script: string): void;
}

const NPM = `#!/bin/bash
echo "npm $*" >>"$CALLS"
rm -rf node_modules
mkdir -p node_modules/.bin
sleep "\${NPM_SECONDS:-0}"
cp "$NEW_NODE" node_modules/.bin/node
`;
// It reports version 24, finds that npm's record disagrees with the lock, and "runs" a task.
const NEW_NODE = `#!/bin/bash
case "$1" in
  -p) echo 24 ;;
  -e) exit 1 ;;
  *) echo "task \${*:2}" ;;
esac
`;
const OLD_NODE = `#!/bin/bash
[ "$1" != -p ] || echo 20
[ "$1" != --version ] || echo v20.0.0
`;
const PYTHON = `#!/bin/bash
[ "$1 $2" = "-m venv" ] || exit 0
echo "venv" >>"$CALLS"
mkdir -p "$3/bin"
cp "$NEW_PIP" "$3/bin/python"
`;
const NEW_PIP = `#!/bin/bash
echo "pip $*" >>"$CALLS"
`;

/** A clone of only the runner, two tasks and the files that decide what is installed. */
function madeUpClone(t: TestContext): Clone {
  const root = join(temporaryFolder(t), "a clone");
  mkdirSync(root);
  cpSync(join(ROOT, "task"), join(root, "task"));
  writeFile(join(root, "package.json"), "{}");
  writeFile(join(root, "packages", "node", "package.json"), "{}");
  writeFile(join(root, "package-lock.json"), '{ "packages": {} }');
  writeFile(join(root, "requirements", "lab.txt"), "x==1\n");
  writeFile(join(root, "requirements", "border-dev.txt"), "y==1\n");
  const table = [
    ["plain", 'summary: "A plain one.",'],
    ["with:python", 'summary:\n      "One on two lines.",\n    needs: "python",'],
    ["with:tools", 'summary: "With tools.",\n    needs: "python-tools",'],
  ];
  writeFile(
    join(root, "tasks", "table.ts"),
    table.map(([name, rest]) => `  {\n    name: "${name}",\n    ${rest}\n  },\n`).join(""),
  );
  const bin = join(root, "..", "bin");
  for (const tool of TOOLS) {
    const found = spawnSync("/bin/sh", ["-c", `command -v ${tool}`], { encoding: "utf8" }).stdout.trim();
    mkdirSync(bin, { recursive: true });
    if (found !== "") symlinkSync(found, join(bin, tool));
  }
  const replace = (program: string, script: string) => writeFile(join(bin, program), script, 0o755);
  replace("npm", NPM);
  replace("node", OLD_NODE);
  replace("python3", PYTHON);
  const callsFile = join(root, "..", "calls");
  replace("new-node", NEW_NODE);
  replace("new-pip", NEW_PIP);
  const env = {
    PATH: bin,
    HOME: root,
    CALLS: callsFile,
    NEW_NODE: join(bin, "new-node"),
    NEW_PIP: join(bin, "new-pip"),
  };
  return {
    root,
    env,
    replace,
    calls: () => (existsSync(callsFile) ? readFileSync(callsFile, "utf8").trim().split("\n") : []),
    task: (...args) => run(join(root, "task"), args, { env, cwd: "/" }),
  };
}

describe("task runner", () => {
  it("the list names every task with its summary before anything is installed", async (t) => {
    const wanted = TASKS.map(({ name, summary }) => `  ${name.padEnd(21)} ${summary}`);
    const listed = await run(join(ROOT, "task"), []);
    assert.deepEqual(listed.stdout.trimEnd().split("\n").slice(2), wanted);
    assert.deepEqual(wanted, [...wanted].sort(), "sorted by name");

    const { task, calls } = madeUpClone(t);
    const bare = await task();
    assert.equal(bare.code, 0);
    assert.match(bare.stdout, /^ {2}plain {17}A plain one\.\n {2}with:python {11}One on two lines\.\n/m);
    assert.deepEqual(calls(), []);
  });

  it("an unknown task is an error that shows the list", async (t) => {
    const { task } = madeUpClone(t);
    for (const name of ["nope", "../plain", "--plain", "main"]) {
      const ended = await task(name);
      assert.equal(ended.code, 2, name);
      assert.match(ended.stderr, /plain {17}A plain one.*error: there is no task/s);
    }
  });

  it("npm packages are installed at first use and after a change of the lock, and not otherwise", async (t) => {
    const { root, task, calls } = madeUpClone(t);
    const first = await task("plain", "an argument", "--option");
    assert.deepEqual([first.code, first.stdout], [0, "task plain an argument --option\n"]);
    assert.match(first.stderr, /Installing npm packages … 0 s\nInstalled npm packages in [0-9]+ s\.\n/);
    const second = await task("plain");
    assert.deepEqual([second.stdout, second.stderr], ["task plain\n", ""]);
    assert.equal(calls().length, 1);
    assert.match(calls()[0] ?? "", /^npm ci --ignore-scripts /);
    writeFile(join(root, "package-lock.json"), '{ "packages": { "": {} } }');
    await task("plain");
    assert.equal(calls().length, 2);
  });

  it("Python programs are installed only for a task that needs them, beside the npm packages", async (t) => {
    const { root, task, calls } = madeUpClone(t);
    const ended = await task("with:python");
    assert.equal(ended.code, 0, ended.stderr);
    assert.match(ended.stderr, /Installed npm packages and Python packages in/);
    const found = calls();
    assert.equal(found.length, 3);
    assert.ok(
      found.some((call) => /^pip -m pip install .*--require-hashes -r .*requirements\/lab\.txt$/.test(call)),
    );
    await task("with:python");
    await task("plain");
    assert.equal(calls().length, 3);
    writeFile(join(root, "requirements", "lab.txt"), "x==2\n");
    await task("plain");
    assert.equal(calls().length, 3);
    await task("with:python");
    assert.equal(calls().length, 5);
  });

  it("the help of a task that needs Python programs installs none of them", async (t) => {
    const { task, calls } = madeUpClone(t);
    const ended = await task("with:tools", "--help");
    assert.equal(ended.code, 0, ended.stderr);
    assert.deepEqual(
      calls().map((call) => call.split(" ")[0]),
      ["npm"],
    );
  });

  it("the border module's tools are installed into the same place, only for a task that needs them", async (t) => {
    const { root, task, calls } = madeUpClone(t);
    await task("with:python");
    const before = calls().length;
    const ended = await task("with:tools");
    assert.equal(ended.code, 0, ended.stderr);
    assert.match(
      calls().at(-1) ?? "",
      /^pip -m pip install .*--require-hashes -r .*requirements\/border-dev\.txt$/,
    );
    assert.equal(calls().length, before + 1);
    await task("with:tools");
    assert.equal(calls().length, before + 1);
    writeFile(join(root, "requirements", "border-dev.txt"), "y==2\n");
    await task("with:python");
    assert.equal(calls().length, before + 1);
    await task("with:tools");
    assert.equal(calls().length, before + 2);
  });

  it("of four at once, one installs and the others wait for it", async (t) => {
    const { task, calls, env } = madeUpClone(t);
    env["NPM_SECONDS"] = "1";
    const ended = await Promise.all([task("plain"), task("plain"), task("plain"), task("plain")]);
    assert.deepEqual(
      ended.map(({ code, stdout }) => [code, stdout]),
      Array(4).fill([0, "task plain\n"]),
    );
    assert.equal(calls().length, 1);
  });

  for (const signal of ["SIGKILL", "SIGTERM", "SIGINT"] as const) {
    it(`an installation ended by ${signal} is done again`, async (t) => {
      const { root, task, calls, env } = madeUpClone(t);
      env["NPM_SECONDS"] = "2";
      const program = start(join(root, "task"), ["plain"], { env });
      while (calls().length === 0) await systemClock.sleep(20);
      program.child.kill(signal);
      await program.finished;
      // Killed outright, ./task cannot end npm; the next one then waits until npm has finished by itself.
      const again = await task("plain");
      assert.deepEqual([again.code, again.stdout], [0, "task plain\n"]);
      assert.equal(calls().length, signal === "SIGKILL" ? 1 : 2);
    });
  }

  it("a failed installation shows the end of its log and fails", async (t) => {
    const { task, replace, calls } = madeUpClone(t);
    replace("npm", '#!/bin/bash\necho "npm $*" >>"$CALLS"; echo "it is broken"; exit 1\n');
    const ended = await task("plain");
    assert.equal(ended.code, 2);
    assert.match(ended.stderr, /Installing npm packages failed.*\n {2}\| it is broken\nerror: .*\nhint: /);
    await task("plain");
    assert.equal(calls().length, 2);
  });

  const LACKING: readonly (readonly [what: string, program: string, script: string, expected: RegExp])[] = [
    [
      "npm's Node.js too old",
      "node",
      '#!/bin/bash\n[ "$1" != -p ] || echo 16\n',
      /error: Node\.js 18 or newer.*\nhint: /,
    ],
    ["Python too old", "python3", "#!/bin/bash\nexit 1\n", /error: Python 3\.10 or newer is needed\nhint: /],
    [
      "Python without venv",
      "python3",
      '#!/bin/bash\n[[ "$*" != *ensurepip* ]]\n',
      /error: .* cannot make virtual environments\nhint: .*python3-venv/,
    ],
  ];

  for (const [what, program, script, expected] of LACKING) {
    it(`${what}: nothing is installed and the hint is named`, async (t) => {
      const { task, replace, calls } = madeUpClone(t);
      replace(program, script);
      const ended = await task("with:python");
      assert.equal(ended.code, 2);
      assert.match(ended.stderr, expected);
      assert.deepEqual(calls(), []);
    });
  }
});
