/** Icons of 16 px. They have no name of their own: the word is always beside them or on their button. */

const PATHS = {
  scheduled: "M8 4.5V8l2.5 1.5M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  ready: "M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  running: "M6.5 5.2v5.6L11 8 6.5 5.2ZM14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  waiting: "M5.5 8h.01M8 8h.01M10.5 8h.01M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  succeeded: "m5.2 8.2 2 2 3.6-4.2M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  failed: "m5.9 5.9 4.2 4.2m0-4.2-4.2 4.2M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  cancelled: "m3.8 12.2 8.4-8.4M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  paused: "M6.2 5.5v5m3.6-5v5M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  warning: "M8 6v3m0 2.2v.01M8 2.2 14.2 13H1.8L8 2.2Z",
  info: "M8 7.4v3.4M8 5.2v.01M14 8A6 6 0 1 1 2 8a6 6 0 0 1 12 0Z",
  search: "m10.6 10.6 3 3M12 7A5 5 0 1 1 2 7a5 5 0 0 1 10 0Z",
  sun: "M8 1.5v1m0 11v1M3.4 3.4l.7.7m7.8 7.8.7.7M1.5 8h1m11 0h1M3.4 12.6l.7-.7m7.8-7.8.7-.7M10.8 8a2.8 2.8 0 1 1-5.6 0 2.8 2.8 0 0 1 5.6 0Z",
  moon: "M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1Z",
  system: "M2.5 3.5h11v7h-11zM6 13.5h4M8 10.5v3",
  copy: "M5.5 5.5h8v8h-8zM2.5 10.5v-8h8",
  up: "m3.5 10 4.5-4.5L12.5 10",
  right: "m6 3.5 4.5 4.5L6 12.5",
  down: "m3.5 6 4.5 4.5L12.5 6",
  close: "m4 4 8 8m0-8-8 8",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v2.6h-2.6",
  play: "M5 3.5v9l7-4.5-7-4.5Z",
  overview: "M2.5 9h3.5V2.5H2.5V9Zm0 4.5h3.5v-2H2.5v2Zm7.5 0h3.5V7H10v6.5Zm0-11v2h3.5v-2H10Z",
  tasks: "M6 4h7.5M6 8h7.5M6 12h7.5M2.6 4h.01M2.6 8h.01M2.6 12h.01",
  sources: "m8 2.2 5.8 2.9L8 8 2.2 5.1 8 2.2ZM2.2 8 8 10.9 13.8 8M2.2 10.9 8 13.8l5.8-2.9",
  schedules: "M3 4h10v9.5H3zM3 7h10M5.5 2.5V5m5-2.5V5",
  workers: "M3 3h10v4H3zM3 9h10v4H3zM5 5h.01M5 11h.01",
  flows: "M3.5 5.5v5m0 0a3 3 0 0 0 3 3h2M5 4a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0Zm0 8M14 4a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0Zm0 9a1.5 1.5 0 1 1-3 0 1.5 1.5 0 0 1 3 0M5 4h6",
  batches: "M2.5 2.5h4v4h-4zm7 0h4v4h-4zm-7 7h4v4h-4zm7 0h4v4h-4z",
  outbox: "M2.5 9.5v4h11v-4M8 10V2.5m0 0L5 5.5m3-3 3 3",
  agents: "M4 6h8v6.5H4zM8 6V3m-2 6h.01M10 9h.01M8 3h.01",
  audit: "M4 2.5h8v11H4zM6 5.5h4m-4 2.5h4m-4 2.5h2.5",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  keyboard: "M1.5 4h13v8.5h-13zM4 6.8h.01M6.7 6.8h.01M9.3 6.8h.01M12 6.8h.01M5 9.8h6",
  user: "M8 8a2.6 2.6 0 1 0 0-5.2A2.6 2.6 0 0 0 8 8ZM3 13.5c.6-2.4 2.6-3.7 5-3.7s4.400 1.300 5 3.700",
  signout: "M9.500 3H3v10h6.500M6.500 8H14m0 0-2.500-2.500M14 8l-2.500 2.500",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, class: kind }: { name: IconName; class?: string }) {
  return (
    <svg class={`icon ${kind ?? ""}`} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
