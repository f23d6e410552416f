// Types that the page's scripts share. `quackd` are the declarations of `quack schema --typescript`.
import type * as Q from "quackd";
import type { Questions, Sessions } from "/assets/store.js";
import type { Wire as TheWire } from "/assets/wire.js";

declare global {
  type Wire = TheWire;
  type Rights = Partial<Q.PageRights>;
  type Kid = Node | string | number | null | undefined | false;
  type Of<T> = T extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[T] : HTMLElement;
  /** Element of a tag with classes: `p.faint`. */
  type Tag<K extends string> = K extends `${infer T}.${string}` ? Of<T> : Of<K>;
  interface Attributes {
    [name: string]: any;
    onclick?: (event: MouseEvent) => any;
    onkeydown?: (event: KeyboardEvent) => any;
    onsubmit?: (event: SubmitEvent) => any;
  }
  type DaemonEvent = { event: string; sessionId: string; data: any; seq?: number };
  type Listener = (event: DaemonEvent) => void;
  type Waiting = { resolve: (data: any) => void; reject: (error: Error) => void };
  type Owner = { state: (state: string) => void; signedOut: (why: string) => void };
  type Follower = { event: (event: DaemonEvent) => void; began: () => void; lost: () => void };
  /** The followed session. `loose`: the number of the next event is not known. */
  type Followed = { sessionId: string; seq: number; epoch: string; fresh: boolean; loose: boolean; to: Follower };
  type App = { wire: Wire; request: Wire["request"]; sessions: Sessions; questions: Questions; rights: Rights };
  /** Fills the element and returns what ends the view. `id` is the rest of the address. */
  type View = (main: HTMLElement, app: App, id: string) => () => void;
  /** A session, with its share of a processor since `at`, the time of its last change. */
  type Row = Q.SessionRow & { cpu?: number; at: number; asked: number };
  type RowsData = Q.SessionRowsData;
  type PsData = Q.PsData;
  type Question = Q.PendingApproval & { until: number };
  type Closed = Q.RecentApproval;
  type Grant = Q.ScopedGrant;
  type Changed = Q.IsolatedFile;
  type Isolated = Q.IsolatedData;
  type Network = Q.NetworkData;
  type Forward = Q.SessionForward;
  type Check = Q.Check;
  type Rows = Q.ScreenRows;
  type Run = Q.ScreenRun;
  type Card = { node: HTMLElement; tick: () => void; close: (how?: Partial<Closed>) => void };
  /** An item of a log: how to draw it, and its element. */
  type LogItem = { node?: HTMLElement; draw: (node: HTMLElement) => void };
  type Open = { key: string; message: any; text: string };
  /** Makes a button that changes files. */
  type Act = (text: string, warning: string, more?: () => object, look?: string) => Kid;
  /** Title of a group, or a session. */
  type Item = { title: string; row?: Row };
  /** A row of a virtual list. */
  type Updating<T> = HTMLElement & { update: (item: T) => void };
}
