/** What all pages share: location, connection, status, settings of this browser, and notices. */
import { computed, signal } from "@preact/signals";
import type { ShownAction } from "./actions.ts";
import { Api, ApiError, type Status } from "./api.ts";
import type { Zone } from "./format.ts";
import { LiveStream, type MessageName, type Surroundings } from "./live.ts";
import { t } from "./messages.ts";
import { Router } from "./router.ts";

export type Theme = "system" | "light" | "dark";

const base = document.documentElement.dataset.base ?? "/";

export const router = new Router(base, window.location.pathname, window.location.search);
export const api = new Api(router.base, router.app);

export const status = signal<Status | null>(null);
/** Known before the first answer to `/status`: the server writes it into the HTML. */
type Identity = Pick<Status, "app" | "environment" | "user" | "role" | "features">;
const shell = identityOf(document.documentElement.dataset);
export const identity = computed<Identity>(() => status.value ?? shell);

function identityOf({ app = "", environment = "", user = "", role, features = "" }: DOMStringMap): Identity {
  return { app, environment, user, role: role === "operator" ? role : "viewer", features: features.split(" ") };
}

/** Why `/status` was refused; null: it was not. */
export const statusTrouble = signal<string | null>(null);
/** For the navigation: of the status, or newer of a page that has it. */
export const failedCount = signal<number | null>(null);
/** Set while the store does not answer: the time of the first failure, and its text. */
export const storeTrouble = signal<{ since: number; text: string } | null>(null);
/** The present on the server's clock, once per second. */
export const now = signal(Date.now());
export const isHeld = signal(false);
export const actions = signal<readonly ShownAction[]>([]);
export const notices = signal<readonly Notice[]>([]);

export interface Notice { id: number; kind: "done" | "error"; text: string }

export const canOperate = computed(() => identity.value.role === "operator" && storeTrouble.value === null);

function remembered<T extends string>(name: string, values: readonly T[], fallback: T) {
  const key = `onthedot.${name}`;
  const found = values.find((value) => value === localStorage.getItem(key));
  const setting = signal<T>(found ?? fallback);
  setting.subscribe((value) => localStorage.setItem(key, value));
  return setting;
}

export const theme = remembered<Theme>("theme", ["system", "light", "dark"], "system");
export const zone = remembered<Zone>("zone", ["browser", "UTC"], "browser");

theme.subscribe((value) => {
  document.documentElement.dataset.theme = value;
});

type Receiver = (name: MessageName, data: unknown) => void;
const receivers = new Set<Receiver>();

const surroundings: Surroundings = {
  open: (url) => new EventSource(url) as unknown as ReturnType<Surroundings["open"]>,
  now: () => Date.now(),
  setTimeout: (action, ms) => window.setTimeout(action, ms),
  clearTimeout: (timer) => window.clearTimeout(timer),
  probe: () => api.probe(),
};

export const live = new LiveStream(api.address("/changes"), surroundings, (name, data) => {
  if (name === "store") onStore(data as StoreMessage);
  for (const receiver of receivers) receiver(name, data);
});

interface StoreMessage { unavailable_since: string | number | null; error: string }

function onStore(data: StoreMessage): void {
  if (data.unavailable_since === null) {
    storeTrouble.value = null;
    for (const receiver of receivers) receiver("reset", null);
  } else {
    storeTrouble.value = { since: new Date(data.unavailable_since).getTime() || Date.now(), text: data.error };
  }
}

/** Messages of the stream, until the returned function is called. */
export function onMessage(receiver: Receiver): () => void {
  receivers.add(receiver);
  return () => receivers.delete(receiver);
}

let offset = 0;
let notified = 0;

export function notify(kind: Notice["kind"], text: string): void {
  notified += 1;
  const notice = { id: notified, kind, text };
  notices.value = [...notices.value.slice(-2), notice];
  window.setTimeout(() => {
    notices.value = notices.value.filter(({ id }) => id !== notice.id);
  }, kind === "error" ? 10_000 : 5000);
}

/** A change without a dialog: its refusal becomes a notice. */
export async function attempt(change: () => Promise<void>): Promise<void> {
  try {
    await change();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    notify("error", error.message || t.unreachable);
  }
}

/** An answer of the API has failed: the frame shows why. */
export function noteFailure(error: unknown): void {
  if (!(error instanceof ApiError)) throw error;
  if (error.status === 401) {
    live.connection.value = { state: "signed_out" };
  } else if (error.status === 0 || error.code === "store_unavailable" || error.code === "store_busy") {
    storeTrouble.value ??= { since: Date.now(), text: error.message };
  }
}

export function noteSuccess(): void {
  if (storeTrouble.value !== null) storeTrouble.value = null;
}

let loads = 0;

export async function loadStatus(): Promise<void> {
  loads += 1;
  try {
    const found = await api.get<Status>("/status");
    offset = Date.parse(found.now) - Date.now();
    status.value = found;
    failedCount.value = found.failed;
    statusTrouble.value = null;
    noteSuccess();
  } catch (error) {
    noteFailure(error);
    if (error instanceof ApiError) statusTrouble.value = error.message || t.unreachable;
  } finally {
    loads -= 1;
  }
}

export function start(): void {
  router.listen(window);
  if (document.hidden) live.setHidden(true);
  document.addEventListener("visibilitychange", () => live.setHidden(document.hidden));
  window.setInterval(() => {
    if (!document.hidden) now.value = Date.now() + (Math.abs(offset) > 500 ? offset : 0);
  }, 1000);
  if (router.location.value.page === "login") return;
  void loadStatus();
  window.setInterval(() => {
    if (loads > 0) return; // requests that hang would take all connections of the browser
    if (!document.hidden && live.connection.value.state !== "signed_out") void loadStatus();
  }, 5000);
}
