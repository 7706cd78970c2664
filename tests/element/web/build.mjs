// Builds dist/: Element Web's interface (matrix-react-sdk, as published on npm) with the small application in src.
// It does for esbuild and PostCSS what element-web's webpack configuration does: SVG files as URLs and as components,
// the workers, the strings, and the light theme.
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { build } from "esbuild";
import postcss from "postcss";
import scss from "postcss-scss";

const require = createRequire(import.meta.url);
const root = import.meta.dirname;
const source = (name) => path.join(root, "src", name);
const sdk = path.join(root, "node_modules/matrix-react-sdk");
const out = path.join(root, "dist");

await rm(out, { recursive: true, force: true });
await mkdir(path.join(out, "i18n"), { recursive: true });

/** An SVG file is a URL by default, and a React component under the name Icon. */
async function svgModule(file) {
  const text = (await readFile(file, "utf8")).replace(/<\?xml.*?\?>|<!--.*?-->|<!DOCTYPE.*?>/gs, "").trim();
  const [, attributes, inner] = text.match(/^<svg([^>]*)>(.*)<\/svg>$/s) ?? [null, "", ""];
  const properties = Object.fromEntries(
    [...attributes.matchAll(/([\w:-]+)\s*=\s*"([^"]*)"/g)]
      .filter(([, name]) => !name.startsWith("xmlns") && name !== "class" && name !== "style")
      .map(([, name, value]) => [name.replace(/-([a-z])/g, (_, letter) => letter.toUpperCase()), value]),
  );
  const url = `data:image/svg+xml;base64,${Buffer.from(text).toString("base64")}`;
  return `const React = require("react");
    exports.__esModule = true;
    exports.default = ${JSON.stringify(url)};
    exports.Icon = (props) => React.createElement("svg", Object.assign(${JSON.stringify(properties)}, props,
      { dangerouslySetInnerHTML: { __html: ${JSON.stringify(inner)} } }));`;
}

const inLibrary = (importer) => importer.includes("matrix-react-sdk/lib");

/** What webpack's aliases and loaders do in element-web. */
const element = {
  name: "element",
  setup(builder) {
    builder.onLoad({ filter: /\.svg$/ }, async ({ path: file }) => ({
      loader: "js",
      resolveDir: root,
      contents: await svgModule(file),
    }));
    builder.onResolve({ filter: /^\$webapp\/i18n\/languages\.json$/ }, () => ({
      path: "languages",
      namespace: "text",
    }));
    builder.onLoad({ filter: /^languages$/, namespace: "text" }, () => ({
      contents: "i18n/languages.json",
      loader: "text",
    }));
    // "!!raw-loader!./x.css": the file's text.
    builder.onResolve({ filter: /^!!raw-loader!/ }, ({ path: wanted, resolveDir }) => ({
      path: path.join(resolveDir, wanted.slice("!!raw-loader!".length)),
      namespace: "raw",
    }));
    builder.onLoad({ filter: /.*/, namespace: "raw" }, async ({ path: file }) => ({
      contents: await readFile(file, "utf8").catch(() => ""),
      loader: "text",
    }));
    // The published lib/ is CommonJS, where import.meta is empty: name the workers that are built below.
    builder.onLoad({ filter: /lib\/workers\/(\w+)WorkerFactory\.js$/ }, ({ path: file }) => ({
      contents: `exports.__esModule = true;
        exports.default = (options) => new Worker("${path.basename(file).replace("WorkerFactory.js", "")}.worker.js", options);`,
    }));
    // Some of lib/ still names its neighbours as TypeScript, and one file reaches into src/, which would be a second
    // copy of everything.
    builder.onResolve({ filter: /^\.{1,2}\/.*\.tsx?$/ }, ({ path: wanted, importer, resolveDir }) =>
      inLibrary(importer) ? { path: path.join(resolveDir, wanted.replace(/\.tsx?$/, ".js")) } : undefined,
    );
    builder.onResolve({ filter: /^(\.\.\/)+src\// }, ({ path: wanted, importer, resolveDir }) =>
      inLibrary(importer)
        ? { path: `${path.join(resolveDir, wanted.replace("/src/", "/lib/"))}.js` }
        : undefined,
    );
    // Recording of voice messages is not needed.
    builder.onResolve({ filter: /^opus-recorder\/dist\/.*(worker|wasm|recorder)/i }, ({ path: wanted }) => ({
      path: wanted,
      namespace: "none",
    }));
    builder.onResolve({ filter: /\/RecorderWorklet$/ }, ({ path: wanted }) => ({
      path: wanted,
      namespace: "none",
    }));
    builder.onLoad({ filter: /.*/, namespace: "none" }, () => ({ contents: "module.exports = {};" }));
  },
};

const empty = source("empty.cjs");
const common = {
  bundle: true,
  minify: true,
  target: "chrome120",
  logLevel: "error",
  define: {
    "process.env.NODE_ENV": '"production"',
    "process.env.VERSION": '"3.114.0"',
    global: "globalThis",
  },
  plugins: [element],
  loader: {
    ".woff2": "file",
    ".woff": "file",
    ".png": "file",
    ".gif": "file",
    ".wasm": "file",
    ".ogg": "file",
    ".mp3": "file",
  },
  assetNames: "assets/[name]-[hash]",
  nodePaths: [path.join(root, "node_modules")],
  alias: { stream: empty, crypto: empty, fs: empty, path: empty },
};

await build({
  ...common,
  inject: [source("inject.js")],
  entryPoints: [source("shell.js")],
  outdir: out,
  format: "esm",
  splitting: true,
  chunkNames: "chunks/[name]-[hash]",
});
await build({
  ...common,
  entryPoints: ["blurhash", "indexeddb", "playback"].map((name) => ({
    in: path.join(sdk, `lib/workers/${name}.worker.js`),
    out: `${name}.worker`,
  })),
  outdir: out,
  format: "iife",
});

const theme = path.join(sdk, "res/themes/light/css/light.pcss");
const isFile = (id) => /^[./_]|\.pcss$/.test(id);
const { css } = await postcss([
  require("postcss-import")({
    resolve: (id, base) => (isFile(id) ? path.resolve(base, id) : require.resolve(id)),
  }),
  require("postcss-mixins")(),
  require("postcss-simple-vars")(),
  require("postcss-nested")(),
  require("postcss-easings")(),
  require("postcss-hexrgba")(),
]).process(await readFile(theme, "utf8"), { from: theme, parser: scss });
await build({
  stdin: { contents: css, loader: "css", resolveDir: path.dirname(theme), sourcefile: "light.css" },
  bundle: true,
  minify: true,
  target: "chrome120",
  logLevel: "error",
  outfile: path.join(out, "theme-light.css"),
  assetNames: "assets/[name]-[hash]",
  loader: { ".svg": "dataurl", ".png": "file", ".gif": "file", ".woff2": "file", ".woff": "file" },
});

await writeFile(path.join(out, "i18n/languages.json"), JSON.stringify({ en: "en_EN.json" }));
await cp(path.join(sdk, "src/i18n/strings/en_EN.json"), path.join(out, "i18n/en_EN.json"));
// Last: where it is, the build is whole.
await cp(source("index.html"), path.join(out, "index.html"));
