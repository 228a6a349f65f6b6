/** The only place where an address is made of data: pages of ours, and addresses of the web. */
import type { ComponentChildren } from "preact";
import { router } from "../session.ts";

interface PageLinkProps {
  to: string;
  children: ComponentChildren;
  class?: string;
  current?: boolean;
  label?: string;
  /** -1: another link of the same group is reached by Tab. */
  tabIndex?: number;
  /** What Enter opens in a row that has several links. */
  opens?: boolean;
}

/** A page of ours, by its path below the base. */
export function PageLink({ to, children, current, label, tabIndex, opens, ...rest }: PageLinkProps) {
  return (
    <a href={router.address(to)} data-route={to} class={rest.class} aria-current={current ? "page" : undefined} aria-label={label} tabIndex={tabIndex} data-open={opens}>
      {children}
    </a>
  );
}

export function isSafe(address: string): boolean {
  try {
    return ["http:", "https:", "mailto:"].includes(new URL(address, window.location.href).protocol);
  } catch {
    return false;
  }
}

/** An address from data: text unless its scheme is known to be harmless. */
export function OutsideLink({ to, children }: { to: string; children: ComponentChildren }) {
  if (!isSafe(to)) return <span>{children}</span>;
  return <a href={to} target="_blank" rel="noopener noreferrer">{children}</a>;
}

/** A file of the API, saved by the browser. */
export function Download({ address, children }: { address: string; children: ComponentChildren }) {
  return <a class="button" href={address} download>{children}</a>;
}
