// Checks Kubernetes objects against their published schemas: names and types by TypeScript, values by the packages' own
// validators. Reads [{where, object}] as JSON, writes [{where, problem}]. Runs in the folder of the packages.
import { readFileSync } from "node:fs";
import ts from "typescript";

const GROUPS = {
  "keda.sh": "@kubernetes-models/keda/keda.sh",
  "gateway.networking.k8s.io": "@kubernetes-models/gateway-api/gateway.networking.k8s.io",
  "monitoring.coreos.com": "@kubernetes-models/prometheus-operator/monitoring.coreos.com",
};

const given = JSON.parse(readFileSync(0, "utf8"));
const problems = [];
const lines = [];
const places = []; // line in the program → index of the object
for (const [index, { where, object }] of given.entries()) {
  const [group, version] = object.apiVersion.includes("/") ? object.apiVersion.split("/") : ["", object.apiVersion];
  const module = GROUPS[group] ? `${GROUPS[group]}/${version}` : ["kubernetes-models", group, version].filter(Boolean).join("/");
  let model;
  try {
    model = (await import(module))[object.kind];
  } catch (error) {
    problems.push({ where, problem: `${module}: ${error.message}` });
    continue;
  }
  if (!model) {
    problems.push({ where, problem: `${module} has no ${object.kind}` });
    continue;
  }
  try {
    new model(object).validate();
  } catch (error) {
    problems.push({ where, problem: error.message });
  }
  // An object literal where a type is expected: TypeScript refuses the names that the type lacks.
  const { apiVersion, kind, ...rest } = object;
  places[lines.length] = index;
  lines.push(`import { I${kind} as T${index} } from ${JSON.stringify(module)}; export const o${index}: Omit<T${index}, "apiVersion" | "kind"> = ${JSON.stringify(rest)};`);
}

const file = `${process.cwd()}/objects.ts`;
const options = { strict: true, noEmit: true, skipLibCheck: true, target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, types: [] };
const host = ts.createCompilerHost(options);
const { getSourceFile, fileExists, readFile } = host;
const text = lines.join("\n");
host.fileExists = (name) => name === file || fileExists(name);
host.readFile = (name) => (name === file ? text : readFile(name));
host.getSourceFile = (name, ...more) => (name === file ? ts.createSourceFile(name, text, ts.ScriptTarget.ES2022) : getSourceFile(name, ...more));
for (const found of ts.getPreEmitDiagnostics(ts.createProgram([file], options, host))) {
  const line = found.file?.fileName === file ? found.file.getLineAndCharacterOfPosition(found.start).line : -1;
  problems.push({ where: given[places[line]]?.where ?? "TypeScript", problem: ts.flattenDiagnosticMessageText(found.messageText, " ") });
}
process.stdout.write(JSON.stringify(problems));
