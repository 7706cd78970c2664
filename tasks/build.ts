// Bundles what the npm packages ship, each into the `dist` of its package (run by npm before it packs).
// Invariants: dist is made anew each time; every file of it lies directly in it, since the sources find threads and
// migrations by URLs beside the importing file; a package that stays outside the bundle is a runtime dependency.
import { cpSync, globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build as bundle, type Metafile } from "esbuild";
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

const PACKAGES: Readonly<Record<string, Package>> = {
  drawbridge: {
    folder: ".",
    entries: { main: "src/cli/main.ts", thread: "src/bridge/crypto/thread.ts" },
    assets: [{ files: "src/bridge/ledger/migrations/*.sql", into: "migrations" }],
  },
  "drawbridge-verify": {
    folder: "packages/verify",
    entries: { main: "packages/verify/main.ts" },
    assets: [],
  },
};

interface Manifest {
  readonly name: string;
  readonly engines: { readonly node: string };
  readonly dependencies?: Readonly<Record<string, string>>;
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8")) as Manifest;
}

/** Bundles the packages that are named, or all. */
export async function build(args: readonly string[]): Promise<number> {
  const names = args.length === 0 ? Object.keys(PACKAGES) : args;
  for (const name of names) {
    const wanted = PACKAGES[name];
    if (wanted === undefined) {
      throw new DrawbridgeError("usage", `there is no package ${name}`, {
        hint: `The packages are ${Object.keys(PACKAGES).join(" and ")}.`,
      });
    }
    await buildPackage(wanted);
  }
  return 0;
}

async function buildPackage({ folder, entries, assets }: Package): Promise<void> {
  const manifest = readManifest(folder);
  const dist = join(ROOT, folder, "dist");
  rmSync(dist, { recursive: true, force: true });
  const { metafile } = await bundle({
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
    metafile: true,
    logLevel: "warning",
  });
  for (const { files, into } of assets) {
    for (const file of globSync(files, { cwd: ROOT })) {
      cpSync(join(ROOT, file), join(dist, into, basename(file)), { recursive: true });
    }
  }
  writeFileSync(join(dist, "THIRD-PARTY-LICENSES.txt"), renderLicenses(metafile));
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
