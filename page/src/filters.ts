/** The text of the filter box: terms `key:value`, quotes around spaces. The server reads it; the page changes one term. */

const TERM = /(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+/g;

export function terms(text: string): string[] {
  return text.match(TERM) ?? [];
}

export function valueOf(text: string, key: string): string {
  const found = terms(text).find((term) => term.startsWith(`${key}:`));
  return found === undefined ? "" : found.slice(key.length + 1).replace(/^"(.*)"$/, "$1");
}

/** Replaces or adds the term of a key; an empty value removes it. */
export function withValue(text: string, key: string, value: string): string {
  const others = terms(text).filter((term) => !term.startsWith(`${key}:`));
  if (value === "") return others.join(" ");
  const quoted = /[\s"]/.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value;
  return [...others, `${key}:${quoted}`].join(" ");
}

export const KEYS = ["source", "state", "tag", "since", "until", "error", "group", "flow", "uuid"] as const;

/** `onthedot task list '…'`: quoted for a shell. */
export function cliCall(q: string): string {
  return `onthedot task list '${q.replaceAll("'", `'"'"'`)}'`;
}

/** The call of app.operations with the same filter; an argument path goes into `where`. */
export function pythonCall(q: string): string {
  const given: string[] = [];
  const where: string[] = [];
  const words: string[] = [];
  for (const term of terms(q)) {
    const colon = term.indexOf(":");
    const key = term.slice(0, Math.max(0, colon));
    const value = term.slice(colon + 1).replace(/^"(.*)"$/, "$1");
    if (colon < 1) words.push(term.replace(/^"(.*)"$/, "$1"));
    else if (key === "since" || key === "until") given.push(`${key}=${moment(value)}`);
    else if ((KEYS as readonly string[]).includes(key)) given.push(`${key}=${JSON.stringify(value)}`);
    else where.push(`${JSON.stringify(key)}: ${value.startsWith("=") ? value.slice(1) : JSON.stringify(value)}`);
  }
  if (where.length > 0) given.push(`where={${where.join(", ")}}`);
  if (words.length > 0) given.push(`text=${JSON.stringify(words.join(" "))}`);
  return `await app.operations.find(${given.join(", ")})`;
}

const SPANS: Record<string, string> = { s: "seconds", m: "minutes", h: "hours", d: "days", w: "weeks" };

function moment(value: string): string {
  const ago = /^([0-9.]+)([smhdw])$/.exec(value);
  if (ago) return `datetime.now(UTC) - timedelta(${SPANS[ago[2] ?? "s"]}=${ago[1]})`;
  return `datetime.fromisoformat(${JSON.stringify(value)})`;
}

/** Completions of the last term: keys, or the values of its key. */
export function completions(text: string, values: Record<string, readonly string[]>): string[] {
  const last = /\S*$/.exec(text)?.[0] ?? "";
  const head = text.slice(0, text.length - last.length);
  const colon = last.indexOf(":");
  if (colon < 0) return KEYS.filter((key) => key.startsWith(last) && last !== "").map((key) => `${head}${key}:`);
  const key = last.slice(0, colon);
  const begun = last.slice(colon + 1).toLowerCase();
  return (values[key] ?? []).filter((value) => value.toLowerCase().startsWith(begun) && value !== begun)
    .slice(0, 8).map((value) => withValue(head.trim(), key, value));
}
