/* Ports (see port.h). */
#include "shell/port.h"

#include "core/mem.h"
#include "shell/port_ask.h"
#include "shell/shell.h"

#define IDLE_PORTS_MAX 64u

bool port_init(struct port *port, struct peerage *p, bool is_loop)
{
    memset(port, 0, sizeof *port);
    if (!bell_init(&port->bell))
        return false;
    port->peerage = p;
    port->is_loop = is_loop;
    atomic_init(&port->refs, 1);
    atomic_init(&port->ringing, false);
    list_init(&port->of_node);
    list_init(&port->completed);
    list_init(&port->dialled);
    list_init(&port->verified);
    list_init(&port->loads_here);
    list_init(&port->cancels);
    list_init(&port->words);
    return true;
}

void port_deinit(struct port *port)
{
    bell_deinit(&port->bell);
}

void port_unref(struct port *port)
{
    if (atomic_fetch_sub(&port->refs, 1) != 1)
        return;
    if (port->is_loop) {
        port_ask_free(port);
    } else {
        port_deinit(port);
        mem_free(port);
    }
}

struct port *port_borrow(struct peerage *p)
{
    if (list_empty(&p->idle_ports))
        return NULL;
    struct port *port = CONTAINER_OF(p->idle_ports.next, struct port, of_node);
    list_remove(&port->of_node);
    list_add_tail(&p->ports, &port->of_node);
    p->idle_count--;
    port->closed = p->closed;
    return port;
}

bool port_make_idle(struct peerage *p)
{
    struct port *port = mem_alloc(sizeof *port);

    if (!port)
        return false;
    if (!port_init(port, p, false)) {
        mem_free(port);
        return false;
    }
    pthread_mutex_lock(&p->lock);
    list_add_head(&p->idle_ports, &port->of_node);
    p->idle_count++;
    pthread_mutex_unlock(&p->lock);
    return true;
}

bool port_return(struct peerage *p, struct port *port)
{
    list_remove(&port->of_node);
    port->members_changed = false;
    if (p->idle_count >= IDLE_PORTS_MAX)
        return false;
    list_add_head(&p->idle_ports, &port->of_node);
    p->idle_count++;
    return true;
}
