// Every visible text is in messages.ts: reports text and named attributes that are written into the markup.
import { globSync, readFileSync } from "node:fs";
import ts from "typescript";

const ATTRIBUTES = new Set(["title", "placeholder", "alt", "aria-label", "aria-description", "label"]);
const WORD = /\p{L}{2}/u;
const found = [];

for (const path of globSync("src/**/*.tsx")) {
  const file = ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX);
  const report = (node, text) => {
    const { line } = file.getLineAndCharacterOfPosition(node.getStart());
    found.push(`${path}:${line + 1}: ${JSON.stringify(text.trim())} belongs into messages.ts`);
  };
  const visit = (node) => {
    if (ts.isJsxText(node) && WORD.test(node.text)) report(node, node.text);
    if (ts.isJsxAttribute(node) && ATTRIBUTES.has(node.name.getText()) && node.initializer && ts.isStringLiteral(node.initializer)) {
      report(node, node.initializer.text);
    }
    if (ts.isJsxExpression(node) && node.expression && ts.isStringLiteralLike(node.expression) && !ts.isJsxAttribute(node.parent) && WORD.test(node.expression.text)) {
      report(node, node.expression.text);
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
}

if (found.length > 0) {
  console.error(found.join("\n"));
  process.exit(1);
}
