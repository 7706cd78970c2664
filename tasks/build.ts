// Bundles what the npm packages ship, each into the `dist` of its package (run by npm before it packs).
// Invariants: dist is made anew each time; every file of it lies directly in it, since the sources find threads and
// migrations by URLs beside the importing file; a package that stays outside the bundle is a runtime dependency.
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { build as bundle, type Metafile, type Plugin } from "esbuild";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { ROOT } from "./run-program.ts";

interface Package {
  /** Where its manifest is, from the root. */
  readonly folder: string;
  /** Source files by the names that they have in dist. */
  readonly entries: Readonly<Record<string, string>>;
  /** Files that the code reads at run time, from the root, and the folder of dist that they go into. */
  readonly assets: readonly { readonly files: string; readonly into: string }[];
}

const PACKAGES = {
  drawbridge: {
    folder: ".",
    entries: { main: "src/cli/main.ts", "machine-thread-entry": "src/bridge/crypto/machine-thread-entry.ts" },
    assets: [{ files: "src/bridge/ledger/migrations/*.sql", into: "migrations" }],
  },
  "drawbridge-verify": {
    folder: "packages/verify",
    entries: { main: "packages/verify/main.ts" },
    assets: [],
  },
} satisfies Record<string, Package>;

interface Manifest {
  readonly name: string;
  readonly engines: { readonly node: string };
  readonly dependencies?: Readonly<Record<string, string>>;
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8")) as Manifest;
}

/** Takes `process` from the global object: Node.js loads forty modules of its own for an import of `node:process`. */
const GLOBAL_PROCESS: Plugin = {
  name: "global-process",
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:process$/ }, () => ({ path: "process", namespace: "global" }));
    onLoad({ filter: /.*/, namespace: "global" }, () => ({ contents: "export default globalThis.process;" }));
  },
};

/** Bundles the packages that are named, or all. */
export async function build(args: readonly string[]): Promise<number> {
  const names = args.length === 0 ? Object.keys(PACKAGES) : args;
  for (const name of names) {
    if (!(name in PACKAGES)) {
      throw new DrawbridgeError("usage", `there is no package ${name}`, {
        hint: `The packages are ${Object.keys(PACKAGES).join(" and ")}.`,
      });
    }
    await buildPackage(PACKAGES[name as keyof typeof PACKAGES]);
  }
  return 0;
}

/** The files that a package's bundle is made of, from the root. */
export async function bundledSources(name: keyof typeof PACKAGES): Promise<readonly string[]> {
  return Object.keys((await bundleFiles(PACKAGES[name], "dist")).metafile.inputs);
}

async function buildPackage(wanted: Package): Promise<void> {
  const dist = join(ROOT, wanted.folder, "dist");
  rmSync(dist, { recursive: true, force: true });
  const { metafile, files } = await bundleFiles(wanted, dist);
  files.set(join(dist, "THIRD-PARTY-LICENSES.txt"), Buffer.from(renderLicenses(metafile)));
  writeFiles(files);
}

/**
 * Bundles the CLI for tests, unless the same was bundled before, and returns its main file. The folder is named by
 * its content, so that several runs in one clone do not disturb each other.
 */
export async function bundleForTests(): Promise<string> {
  const { drawbridge } = PACKAGES;
  const cache = join(ROOT, "node_modules", ".cache");
  const { files } = await bundleFiles(drawbridge, join(cache, "cli"));
  const digest = createHash("sha256");
  for (const content of files.values()) digest.update(content);
  const folder = join(cache, `cli-${digest.digest("hex").slice(0, 16)}`);
  if (!existsSync(folder)) {
    const staging = mkdtempSync(join(cache, "cli-new-"));
    writeFiles(
      new Map(
        [...files].map(([file, content]) => [join(staging, relative(join(cache, "cli"), file)), content]),
      ),
    );
    renameSync(staging, folder);
  }
  return join(folder, "main.js");
}

function writeFiles(files: ReadonlyMap<string, Uint8Array>): void {
  for (const [file, content] of files) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, content);
  }
}

/** What goes into `dist`, by path. */
async function bundleFiles(
  { folder, entries, assets }: Package,
  dist: string,
): Promise<{ readonly metafile: Metafile; readonly files: Map<string, Uint8Array> }> {
  const manifest = readManifest(folder);
  const { metafile, outputFiles } = await bundle({
    absWorkingDir: ROOT,
    entryPoints: { ...entries },
    outdir: dist,
    chunkNames: "[name]-[hash]",
    bundle: true,
    // Each command is a dynamic import, and becomes a file that is loaded when it is called.
    splitting: true,
    format: "esm",
    platform: "node",
    target: `node${manifest.engines.node.replace(">=", "")}`,
    // pg loads pg-native only where somebody has installed it.
    external: [...Object.keys(manifest.dependencies ?? {}), "pg-native"],
    // CommonJS packages require Node.js's own modules.
    banner: {
      js: `import { createRequire } from "node:module";\nconst require = createRequire(import.meta.url);`,
    },
    legalComments: "none",
    // Node.js parses the bundle at each start. Names stay as they are written, because stack traces show them, and because
    // oidc-provider finds the lifetime of a token by the name of its class, which minifySyntax would remove.
    minifyWhitespace: true,
    plugins: [GLOBAL_PROCESS],
    metafile: true,
    write: false,
    logLevel: "warning",
  });
  const files = new Map(outputFiles.map(({ path, contents }) => [path, contents]));
  for (const asset of assets) {
    for (const file of globSync(asset.files, { cwd: ROOT })) {
      files.set(join(dist, asset.into, basename(file)), readFileSync(join(ROOT, file)));
    }
  }
  return { metafile, files };
}

/** The licenses of the packages in the bundle, which ask to go with every copy. */
function renderLicenses(metafile: Metafile): string {
  const folders = Object.keys(metafile.inputs).flatMap(
    (file) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file)?.[0] ?? [],
  );
  return [...new Set(folders)]
    .sort()
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8"));
      const [file] = globSync("{LICENSE,LICENCE,license}*", { cwd: join(ROOT, folder) });
      const text =
        file === undefined ? `License: ${license}\n` : readFileSync(join(ROOT, folder, file), "utf8");
      return `${name} ${version}\n\n${text.trim()}\n`;
    })
    .join(`\n${"-".repeat(80)}\n\n`);
}
