// A page that is opened as a file may not start workers. There the search runs in a hidden frame,
// with the interface of a worker.
if (location.protocol === "file:")
  window.Worker = class {
    constructor(address) {
      const frame = (this.frame = document.createElement("iframe"))
      frame.hidden = true
      this.ready = new Promise((resolve, reject) => {
        frame.onload = () => {
          const inside = frame.contentWindow
          inside.postMessage = data => this.onmessage?.({ data: structuredClone(data) })
          const script = inside.document.createElement("script")
          script.onload = () => resolve(inside)
          script.onerror = reject
          script.src = new URL(address, location.href)
          inside.document.body.append(script)
        }
        document.body.append(frame)
      })
      this.ready.catch(error => this.onerror?.(error))
    }
    async postMessage(data) {
      const copy = structuredClone(data)  // as for a worker: the sender may change its object
      const inside = await this.ready
      inside.dispatchEvent(new inside.MessageEvent("message", { data: copy }))
    }
    terminate() {
      this.frame.remove()
    }
  }
