// Loaded before the command line (node --import): the planes, the probes from outside and the count of what
// remains are scripted, as in offboarding-planes.ts; everything else is what an operator runs.
import { registerHooks } from "node:module";

const INSTEAD: readonly (readonly [string, string])[] = [
  ["/src/federation/planes/runtimes.ts", "offboarding-planes.ts"],
  ["/src/federation/probes/from-outside.ts", "offboarding-planes.ts"],
  ["/src/federation/offboarding/duties/residual.ts", "offboarding-planes.ts"],
];

registerHooks({
  resolve(specifier, context, nextResolve) {
    const resolved = nextResolve(specifier, context);
    const found = INSTEAD.find(([path]) => resolved.url.endsWith(path));
    return found === undefined
      ? resolved
      : {
          ...resolved,
          url: new URL(`../../../support/${found[1]}`, import.meta.url).href,
          shortCircuit: true,
        };
  },
});
