// Which part of the sources may import which. Invariant: in each list, a name may import the names before it,
// never one after it; so no cycle can be declared. `./task check` refuses every other import, type-only included.
import { cyclesOf, folderCyclesOf, type ImportGraph } from "./structure.ts";

/** Folders directly below `src`, innermost first. */
export const PRODUCT_LAYERS = [
  "domain",
  "runtime",
  "cards",
  "records",
  "rendered-files",
  // These four never import one another; `PEERS` says so.
  "bridge",
  "federation",
  "gateway",
  "issuer",
  "cli",
] as const;

/** Products and servers that share nothing but the layers below them. */
const PEERS: readonly string[] = ["bridge", "federation", "gateway", "issuer"];

/**
 * Folders and files directly below one folder of `src`, innermost first. A file that is not listed stands above
 * all of them, and none of them may import it.
 */
export const INNER_LAYERS: Readonly<Record<string, readonly string[]>> = {
  records: ["format", "conditions", "verify", "sign"],
  bridge: [
    "default-limits-and-waits.ts",
    "config.ts",
    "setup",
    "ledger",
    "texts",
    "agents",
    "matrix",
    "health",
    "audit",
    "intake",
    "crypto",
    "notices",
    "status-messages",
    "delegation",
    "catchup",
  ],
  federation: [
    "config.ts",
    "plane-order.ts",
    "registry",
    "repository",
    "homeserver",
    "planes",
    "state",
    "reconcile",
    "change",
    "probes",
    "workflow",
    "containment",
    "evidence",
    "abuse",
    "work-tree",
    "setup",
    "agents",
    "offboarding",
    "readmission",
  ],
};

/** Folders outside `src`, and what of the repository each may import besides itself. */
export const OUTSIDE: Readonly<Record<string, readonly string[]>> = {
  examples: ["src/domain", "src/runtime", "src/cards", "src/issuer"],
  lab: ["src", "examples"],
  packages: ["src/cli"],
  tasks: ["src", "lab", "examples", "tests", "bench"],
};

function isBelow(file: string, folder: string): boolean {
  return file.startsWith(`${folder}/`);
}

function allowedBelowSource(from: string, to: string): boolean {
  const [, fromTop = "", fromInner = ""] = from.split("/");
  const [root, toTop = "", toInner = ""] = to.split("/");
  if (root !== "src") return false;
  const layers: readonly string[] = PRODUCT_LAYERS;
  if (fromTop !== toTop) {
    if (PEERS.includes(fromTop) && PEERS.includes(toTop)) return false;
    return layers.indexOf(toTop) >= 0 && layers.indexOf(toTop) < layers.indexOf(fromTop);
  }
  const inner = INNER_LAYERS[fromTop];
  if (inner === undefined || fromInner === toInner) return true;
  const position = (name: string) => (inner.includes(name) ? inner.indexOf(name) : inner.length);
  // Two files that stand above the folders may import each other; file cycles are looked for separately.
  if (position(fromInner) === inner.length) return true;
  return position(toInner) < position(fromInner);
}

/** Every import that a boundary forbids, and every cycle; empty when there is none. */
export function boundaryProblems(graph: ImportGraph): string[] {
  const problems: string[] = [];
  for (const [from, imports] of graph) {
    for (const to of imports) {
      const outside = Object.entries(OUTSIDE).find(([folder]) => isBelow(from, folder));
      const allowed =
        outside === undefined
          ? !isBelow(from, "src") || allowedBelowSource(from, to)
          : isBelow(to, outside[0]) || outside[1].some((folder) => isBelow(to, folder));
      if (!allowed) problems.push(`${from} must not import ${to} (tasks/boundaries.ts)`);
    }
  }
  for (const cycle of cyclesOf(graph)) problems.push(`these files import one another: ${cycle.join(", ")}`);
  for (const cycle of folderCyclesOf(graph))
    problems.push(`these folders import one another: ${cycle.join(", ")}`);
  return problems;
}
