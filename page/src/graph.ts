/** Where the nodes of a flow are drawn: layers by the longest path, and rows in which few edges cross. Pure functions. */

export interface GraphNode { id: number; count: number; states: Readonly<Record<string, number>> }
export type Edge = readonly [number, number];

export interface Place { id: number; layer: number; x: number; y: number }

export interface Layout {
  places: readonly Place[];
  /** One per edge, from the right side of a node to the left side of another one. */
  paths: readonly string[];
  width: number;
  height: number;
}

export const WIDTH = 212;
export const HEIGHT = 64;
const COLUMN_GAP = 56;
const ROW_GAP = 18;
const BEND_HEIGHT = 14; // of the place of an edge in a layer that it crosses
const MAX_BENDS = 600; // with more of them, long edges cross the layers wherever they are
const SWEEPS = 4;

/** The number of nodes before a node, on the longest path. Edges of nodes that are not there are left out. */
export function depths(ids: readonly number[], edges: readonly Edge[]): Map<number, number> {
  const found = new Map(ids.map((id) => [id, 0]));
  const after = neighbours(edges.filter(([from, to]) => found.has(from) && found.has(to)));
  const open = new Map(ids.map((id) => [id, 0]));
  for (const followers of after.values()) for (const to of followers) open.set(to, (open.get(to) ?? 0) + 1);
  const queue = ids.filter((id) => open.get(id) === 0);
  for (let id = queue.shift(); id !== undefined; id = queue.shift()) {
    for (const to of after.get(id) ?? []) {
      found.set(to, Math.max(found.get(to) ?? 0, (found.get(id) ?? 0) + 1));
      const rest = (open.get(to) ?? 0) - 1;
      open.set(to, rest);
      if (rest === 0) queue.push(to);
    }
  }
  return found;
}

function neighbours(edges: readonly Edge[]): Map<number, number[]> {
  const found = new Map<number, number[]>();
  for (const [from, to] of edges) {
    const list = found.get(from);
    if (list) list.push(to);
    else found.set(from, [to]);
  }
  return found;
}

export function layout(ids: readonly number[], edges: readonly Edge[]): Layout {
  const layerOf = depths(ids, edges);
  const known = edges.filter(([from, to]) => layerOf.has(from) && layerOf.has(to));
  const chains = withBends(known, layerOf);
  const layers: number[][] = [];
  for (const [id, layer] of layerOf) (layers[layer] ??= []).push(id);
  order(layers, chains.flatMap((chain) => chain.slice(1).map((to, i) => [chain[i] ?? to, to] as const)));
  const placed = place(layers);
  const places = [...placed.values()].filter(({ id }) => id >= 0);
  return {
    places,
    paths: chains.map((chain) => path(chain.flatMap((id) => placed.get(id) ?? []))),
    width: Math.max(0, ...places.map(({ x }) => x + WIDTH)),
    height: Math.max(0, ...places.map(({ y }) => y + HEIGHT)),
  };
}

/** Each edge as a chain of nodes, one per layer. A bend has a negative id, and a place in its layer like a node. */
function withBends(edges: readonly Edge[], layerOf: Map<number, number>): number[][] {
  const lengths = edges.map(([from, to]) => (layerOf.get(to) ?? 0) - (layerOf.get(from) ?? 0));
  if (lengths.reduce((sum, length) => sum + length - 1, 0) > MAX_BENDS) return edges.map((edge) => [...edge]);
  let last = 0;
  return edges.map(([from, to], i) => {
    const chain = [from];
    for (let step = 1; step < (lengths[i] ?? 1); step += 1) {
      last -= 1;
      layerOf.set(last, (layerOf.get(from) ?? 0) + step);
      chain.push(last);
    }
    return [...chain, to];
  });
}

/** Sorts each layer by the mean position of its neighbours in the layer before, then in the one after, in turn. */
function order(layers: number[][], edges: readonly Edge[]): void {
  const before = neighbours(edges.map(([from, to]) => [to, from] as const));
  const after = neighbours(edges);
  const position = new Map<number, number>();
  const note = (layer: number[]) => layer.forEach((id, i) => position.set(id, (i + 0.5) / layer.length));
  layers.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    const near = isForward ? before : after;
    for (const layer of isForward ? layers : [...layers].reverse()) {
      const wanted = new Map(layer.map((id) => [id, mean((near.get(id) ?? []).map((each) => position.get(each) ?? 0), position.get(id) ?? 0)]));
      layer.sort((a, b) => (wanted.get(a) ?? 0) - (wanted.get(b) ?? 0) || a - b);
      note(layer);
    }
  }
}

function mean(values: readonly number[], fallback: number): number {
  return values.length === 0 ? fallback : values.reduce((sum, value) => sum + value, 0) / values.length;
}

function place(layers: readonly (readonly number[])[]): Map<number, Place> {
  const heightOf = (id: number) => (id < 0 ? BEND_HEIGHT : HEIGHT);
  const heights = layers.map((layer) => layer.reduce((sum, id) => sum + heightOf(id) + ROW_GAP, -ROW_GAP));
  const tallest = Math.max(0, ...heights);
  const found = new Map<number, Place>();
  layers.forEach((layer, index) => {
    let y = (tallest - (heights[index] ?? 0)) / 2;
    for (const id of layer) {
      found.set(id, { id, layer: index, x: index * (WIDTH + COLUMN_GAP), y: Math.round(y) });
      y += heightOf(id) + ROW_GAP;
    }
  });
  return found;
}

function path(chain: readonly Place[]): string {
  const parts: string[] = [];
  chain.slice(1).forEach((to, i) => {
    const from = chain[i] ?? to;
    const x1 = from.x + WIDTH;
    const y1 = middle(from);
    const half = (to.x - x1) / 2;
    parts.push(`${i === 0 ? `M${x1} ${y1}` : `H${x1}`}C${x1 + half} ${y1} ${to.x - half} ${middle(to)} ${to.x} ${middle(to)}`);
  });
  return parts.join("");
}

function middle({ id, y }: Place): number {
  return y + (id < 0 ? BEND_HEIGHT : HEIGHT) / 2;
}

/** The node that an arrow key goes to: along an edge, or up and down in its layer. */
export function step(key: string, from: number, places: readonly Place[], edges: readonly Edge[]): number | null {
  const here = places.find(({ id }) => id === from);
  if (!here) return null;
  const nearest = (ids: readonly number[]): number | null => {
    const found = places.filter(({ id }) => ids.includes(id)).sort((a, b) => Math.abs(a.y - here.y) - Math.abs(b.y - here.y));
    return found[0]?.id ?? null;
  };
  const layer = places.filter((place) => place.layer === here.layer);
  switch (key) {
    case "ArrowRight": return nearest(edges.filter(([source]) => source === from).map(([, to]) => to));
    case "ArrowLeft": return nearest(edges.filter(([, to]) => to === from).map(([source]) => source));
    case "ArrowUp": return nearest(layer.filter(({ y }) => y < here.y).map(({ id }) => id));
    case "ArrowDown": return nearest(layer.filter(({ y }) => y > here.y).map(({ id }) => id));
    default: return null;
  }
}

const ORDER = ["failed", "running", "ready", "scheduled", "waiting", "cancelled", "succeeded"] as const;

/** Of several tasks the state that an operator has to know first. */
export function nodeState(states: Readonly<Record<string, number>>): (typeof ORDER)[number] {
  return ORDER.find((state) => (states[state] ?? 0) > 0) ?? "waiting";
}

export function ended(states: Readonly<Record<string, number>>): number {
  return (states.succeeded ?? 0) + (states.failed ?? 0) + (states.cancelled ?? 0);
}

/** How many tasks a node waits for, and how many of these have ended. */
export function waitsFor(id: number, nodes: readonly GraphNode[], edges: readonly Edge[]): { needed: number; reached: number } {
  const before = new Set(edges.filter(([, to]) => to === id).map(([from]) => from));
  const found = nodes.filter((node) => before.has(node.id));
  return {
    needed: found.reduce((sum, node) => sum + node.count, 0),
    reached: found.reduce((sum, node) => sum + ended(node.states), 0),
  };
}
