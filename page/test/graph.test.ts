import assert from "node:assert/strict";
import { test } from "node:test";
import { depths, type Edge, ended, type GraphNode, HEIGHT, layout, nodeState, step, waitsFor, WIDTH } from "../src/graph.ts";

const DIAMOND: readonly Edge[] = [[0, 1], [0, 2], [1, 3], [2, 3]];

test("a node is in the layer of its longest path", () => {
  const found = depths([0, 1, 2, 3], [[0, 1], [1, 2], [0, 3], [2, 3]]);
  assert.deepEqual([...found.values()], [0, 1, 2, 3]);
});

test("an edge of a node that is not shown is left out", () => {
  const { places, paths } = layout([0, 1], [[0, 1], [1, 7]]);
  assert.deepEqual([places.length, paths.length], [2, 1]);
});

test("nodes never overlap and edges go to the right", () => {
  const ids = Array.from({ length: 60 }, (_, i) => i);
  const edges: Edge[] = ids.flatMap((to) => [to - 7, to - 11, Math.floor(to / 3)].filter((from) => from >= 0 && from < to).map((from) => [from, to] as const));
  const { places, width, height } = layout(ids, edges);
  const at = new Map(places.map((place) => [place.id, place]));
  for (const [from, to] of edges) assert.ok((at.get(from)?.x ?? 0) + WIDTH < (at.get(to)?.x ?? 0));
  for (const a of places) {
    assert.ok(a.x + WIDTH <= width && a.y + HEIGHT <= height && a.y >= 0);
    for (const b of places) {
      if (a.id < b.id && a.x === b.x) assert.ok(Math.abs(a.y - b.y) >= HEIGHT, `${a.id} and ${b.id} overlap`);
    }
  }
});

test("rows follow the nodes before them, so parallel chains do not cross", () => {
  const edges: Edge[] = [[0, 5], [1, 4], [2, 3], [5, 6], [4, 7], [3, 8]];
  const rows = new Map(layout([0, 1, 2, 3, 4, 5, 6, 7, 8], edges).places.map(({ id, y }) => [id, y]));
  for (const [from, to] of edges) assert.equal(rows.get(from), rows.get(to));
});

test("a long edge has a place of its own in the layers that it crosses", () => {
  const { places, height } = layout([0, 1, 2], [[0, 1], [1, 2], [0, 2]]);
  const crossed = places.find(({ id }) => id === 1);
  assert.ok(crossed && height > HEIGHT && (crossed.y > 0 || crossed.y + HEIGHT < height));
});

test("an empty graph and a graph of one node have a size", () => {
  assert.deepEqual(layout([], []), { places: [], paths: [], width: 0, height: 0 });
  assert.deepEqual([layout([4], []).width, layout([4], []).height], [WIDTH, HEIGHT]);
});

test("arrow keys follow edges and stay in the layer", () => {
  const { places } = layout([0, 1, 2, 3], DIAMOND);
  const go = (key: string, from: number) => step(key, from, places, DIAMOND);
  assert.deepEqual([go("ArrowRight", 1), go("ArrowLeft", 1), go("ArrowDown", 1), go("ArrowUp", 2)], [3, 0, 2, 1]);
  assert.deepEqual([go("ArrowLeft", 0), go("ArrowUp", 1), go("ArrowRight", 3), go("a", 0), go("ArrowRight", 9)], [null, null, null, null, null]);
});

test("the worst state stands for a node", () => {
  assert.equal(nodeState({ succeeded: 900, running: 2, failed: 1 }), "failed");
  assert.equal(nodeState({ succeeded: 900, waiting: 2 }), "waiting");
  assert.equal(nodeState({ succeeded: 900 }), "succeeded");
  assert.equal(ended({ succeeded: 2, failed: 1, cancelled: 1, ready: 5 }), 4);
});

test("a node waits for the tasks of the nodes before it", () => {
  const nodes: GraphNode[] = [
    { id: 0, count: 1, states: { succeeded: 1 } }, { id: 1, count: 100, states: { succeeded: 40, failed: 1, running: 59 } },
    { id: 2, count: 2, states: { ready: 2 } }, { id: 3, count: 1, states: { waiting: 1 } },
  ];
  assert.deepEqual(waitsFor(3, nodes, DIAMOND), { needed: 102, reached: 41 });
  assert.deepEqual(waitsFor(0, nodes, DIAMOND), { needed: 0, reached: 0 });
});
