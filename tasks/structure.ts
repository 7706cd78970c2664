// The structure of the sources: their files, their imports, and the cycles among them. Reads text only.
// Invariants: type-only and dynamic imports count like any other; a graph holds the files below the folders that were asked for.
import { globSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { ROOT } from "./run-program.ts";

/** Imports by importing file; both are paths from the root, such as `src/domain/clock.ts`. */
export type ImportGraph = ReadonlyMap<string, readonly string[]>;

const SPECIFIER = /(?:\bfrom\s*|\bimport\s*\(\s*|^import\s+)["'](\.{1,2}\/[^"']+\.ts)["']/gm;

/** The TypeScript files that one file's text imports, resolved from the root. */
export function importsOf(file: string, text: string): string[] {
  return [...text.matchAll(SPECIFIER)].map((match) => normalize(join(dirname(file), match[1] ?? "")));
}

/** The imports of every TypeScript file below `folders`. */
export function readImports(folders: readonly string[], root = ROOT): ImportGraph {
  const files = folders.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: root })).sort();
  return new Map(files.map((file) => [file, importsOf(file, readFileSync(join(root, file), "utf8"))]));
}

/** The graph in which each file stands for the node that `nameOf` gives it; a node does not import itself. */
function condense(graph: ImportGraph, nameOf: (file: string) => string): ImportGraph {
  const edges = new Map<string, Set<string>>();
  for (const [file, imports] of graph) {
    const from = nameOf(file);
    const targets = edges.get(from) ?? new Set();
    edges.set(from, targets);
    for (const target of imports) {
      const to = nameOf(target);
      if (to !== from) targets.add(to);
    }
  }
  return new Map([...edges].map(([from, targets]) => [from, [...targets].sort()]));
}

/** Groups of nodes that import one another, directly or through others (Tarjan's algorithm). */
export function cyclesOf(graph: ImportGraph): string[][] {
  const order = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const visit = (node: string): number => {
    const index = order.size;
    order.set(node, index);
    let lowest = index;
    stack.push(node);
    for (const next of graph.get(node) ?? []) {
      if (!graph.has(next)) continue;
      if (!order.has(next)) lowest = Math.min(lowest, visit(next));
      else if (stack.includes(next)) lowest = Math.min(lowest, order.get(next) ?? index);
    }
    if (lowest === index) {
      const group = stack.splice(stack.indexOf(node));
      if (group.length > 1) cycles.push(group.sort());
    }
    return lowest;
  };
  for (const node of graph.keys()) if (!order.has(node)) visit(node);
  return cycles;
}

/**
 * Groups of folders that import one another, at every depth: two folders are compared where their paths part. A file that
 * lies beside folders is compared with them by itself, so a folder may use one file of its parent and be used by another.
 */
export function folderCyclesOf(graph: ImportGraph): string[][] {
  const deepest = Math.max(...[...graph.keys()].map((file) => file.split("/").length));
  const cycles: string[][] = [];
  for (let depth = 1; depth < deepest; depth += 1) {
    const folders = condense(graph, (file) => file.split("/").slice(0, depth).join("/"));
    // A cycle of files alone is one of `cyclesOf`.
    cycles.push(...cyclesOf(folders).filter((cycle) => cycle.some((node) => !node.endsWith(".ts"))));
  }
  return cycles;
}
