/** A flow as a graph: nodes in layers, edges between them. As a table for those who cannot see it. */
import { useMemo, useState } from "preact/hooks";
import type { FlowDetail, FlowNode } from "../api-flows.ts";
import { count } from "../format.ts";
import { ended, HEIGHT, layout, nodeState, step, waitsFor, WIDTH } from "../graph.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { Bar, Share } from "./flow-parts.tsx";
import { Icon } from "./icon.tsx";
import { PageLink } from "./link.tsx";
import { StateBadge } from "./state.tsx";

const PHONE = 719;

export function FlowGraph({ detail }: { detail: FlowDetail }) {
  const [isTable, showTable] = useState(window.innerWidth <= PHONE);
  const hasGraph = detail.nodes.length > 0;
  return (
    <section class="card">
      <div class="card-head">
        <h2>{hasGraph ? t.graph : t.layers}</h2>
        {hasGraph && <button class="quiet" aria-pressed={isTable} onClick={() => showTable(!isTable)}>{isTable ? t.asGraph : t.asTable}</button>}
      </div>
      {hasGraph ? (isTable ? <NodeTable detail={detail} /> : <Graph detail={detail} />) : <Layers detail={detail} />}
    </section>
  );
}

/** The tasks of a node: one task opens itself. */
function pathOfNode(flow: string, node: FlowNode): string {
  return node.count === 1 ? pathOf("tasks", node.uuid) : pathOf("tasks", "", { q: `flow:${flow} source:${node.source}` });
}

function Graph({ detail }: { detail: FlowDetail }) {
  const { nodes, edges } = detail;
  const shape = JSON.stringify([nodes.map(({ id }) => id), edges]);
  const { places, paths, width, height } = useMemo(() => layout(nodes.map(({ id }) => id), edges), [shape]);
  const [focused, focus] = useState(nodes[0]?.id ?? 0);
  const onKeyDown = (event: KeyboardEvent) => {
    const next = step(event.key, focused, places, edges);
    if (next === null) return;
    event.preventDefault();
    focus(next);
    (event.currentTarget as Element).querySelector<HTMLElement>(`[data-node="${next}"] a`)?.focus();
  };
  const at = new Map(places.map((place) => [place.id, place]));
  return (
    <div class="graph-box">
      <div class="graph" role="group" aria-label={t.graphOf(nodes.length)} style={{ width: `${width}px`, height: `${height}px` }} onKeyDown={onKeyDown}>
        <svg class="edges" width={width} height={height} aria-hidden="true" focusable="false"><path d={paths.join("")} /></svg>
        {nodes.map((node) => {
          const place = at.get(node.id);
          return place && (
            <div key={node.id} class="graph-place" data-node={node.id} onFocusCapture={() => focus(node.id)}
              style={{ left: `${place.x}px`, top: `${place.y}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` }}>
              <Node node={node} detail={detail} isFocused={node.id === focused} />
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Node({ node, detail, isFocused }: { node: FlowNode; detail: FlowDetail; isFocused: boolean }) {
  const state = nodeState(node.states);
  const done = ended(node.states);
  const text = noteOf(node, detail);
  return (
    <PageLink class={`node node-${state}`} to={pathOfNode(detail.flow.id, node)} tabIndex={isFocused ? 0 : -1}>
      <span class="node-head">
        <Icon name={state} class={`state-${state}`} /><b>{node.source}</b>{node.count > 1 && <span class="node-count">{t.timesCount(count(node.count))}</span>}
      </span>
      <span class="node-note">{text}</span>
      {text !== t.states[state] && <span class="hidden-text">{t.states[state]}</span>}
      {node.count > 1 && done < node.count && <Bar done={done} failed={(node.states.failed ?? 0) + (node.states.cancelled ?? 0)} total={node.count} />}
    </PageLink>
  );
}

/** Below the name: how many have ended, what it waits for, or its state. */
function noteOf(node: FlowNode, { nodes, edges }: FlowDetail): string {
  const done = ended(node.states);
  const failed = node.states.failed ?? 0;
  if (node.count > 1 && failed > 0) return t.failedOf(count(failed), count(node.count));
  if (done > 0 && done < node.count) return t.doneOf(count(done), count(node.count));
  if ((node.states.waiting ?? 0) === node.count) {
    const { needed, reached } = waitsFor(node.id, nodes, edges);
    if (needed > 1 && reached < needed) return t.waitsFor(count(needed - reached), count(needed));
  }
  return t.states[nodeState(node.states)];
}

function NodeTable({ detail }: { detail: FlowDetail }) {
  const names = new Map(detail.nodes.map((node) => [node.id, node.source]));
  return (
    <table class="rows tall cards">
      <thead><tr><th class="state-column">{t.columns.state}</th><th>{t.columns.source}</th><th class="share-column">{t.columns.progress}</th><th>{t.columns.after}</th><th>{t.columns.note}</th></tr></thead>
      <tbody>
        {detail.nodes.map((node) => (
          <tr key={node.id}>
            <td class="state-column"><StateBadge state={nodeState(node.states)} /></td>
            <td class="main"><PageLink to={pathOfNode(detail.flow.id, node)}>{node.source}</PageLink></td>
            <td class="share-column"><Share done={ended(node.states)} failed={(node.states.failed ?? 0) + (node.states.cancelled ?? 0)} total={node.count} /></td>
            <td data-name={t.columns.after}>{detail.edges.filter(([, to]) => to === node.id).map(([from]) => names.get(from)).join(", ") || <span class="none">{t.none}</span>}</td>
            <td class="reason">{node.remark ? <span class="clamp">{node.remark}</span> : <span class="none" />}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Above 200 nodes: how far each layer is. */
function Layers({ detail }: { detail: FlowDetail }) {
  return (
    <table class="rows">
      <thead><tr><th>{t.columns.layer}</th><th class="share-column">{t.columns.progress}</th><th class="number">{t.columns.running}</th><th class="number">{t.columns.failed}</th></tr></thead>
      <tbody>
        {detail.layers.map((layer, i) => (
          <tr key={i}>
            <td>{i + 1} <span class="hint">{t.nodes(layer.nodes)}</span></td>
            <td class="share-column"><Share {...layer} /></td>
            <td class="number">{count(layer.running)}</td>
            <td class={`number ${layer.failed > 0 ? "bad" : ""}`}>{count(layer.failed)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
