/** Lines and indents of JSON, without reading a number. */
export function indented(text: string): string {
  let depth = 0;
  return (text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/g) ?? []).map((token, i, all) => {
    const newline = (by: number) => `\n${"  ".repeat(Math.max(0, depth += by))}`;
    const after = all[i + 1];
    if (token === "{" || token === "[") {
      if (after === "}" || after === "]") return token;
      return token + newline(1);
    }
    if (token === "}" || token === "]") return all[i - 1] === "{" || all[i - 1] === "[" ? token : newline(-1) + token;
    if (token === ",") return token + newline(0);
    return token === ":" ? ": " : token;
  }).join("");
}
