import { count } from "./format.ts";

/** "1 task", "1,204 tasks". */
export function plural(n: number, one: string, many: string): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
