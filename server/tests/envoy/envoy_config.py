"""The configuration of Envoy: its filter, its routes, and the descriptors of each route.

It is written as JSON by the standard library, because Envoy reads JSON as well as YAML.
"""

FILTER = "envoy.filters.http.ratelimit"
SLOT_END = "slot_end"
TYPES = "type.googleapis.com/envoy.extensions"
HEADER_TO_METADATA = f"{TYPES}.filters.http.header_to_metadata.v3.Config"
RATE_LIMIT = f"{TYPES}.filters.http.ratelimit.v3.RateLimit"

# The minimum versions of Envoy for parts of its configuration.
RETRY_AFTER = (1, 40)
REFUNDS = (1, 38)
LOCALITY_METADATA = (1, 38)

# The units of limits in requests. Envoy has no week for them.
UNITS = ["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"]


def bootstrap(
    version, servers, upstreams, *, timeout="30s", health_checks=False, encryption=None
):
    """Returns a configuration with two listeners: one admits undecided requests, one refuses them.

    `servers` contains the ports of the service, and `upstreams` the ports of the upstreams by name.
    """
    return {
        "static_resources": {
            "listeners": [
                listener(version, "open", timeout, deny=False),
                listener(version, "closed", timeout, deny=True),
            ],
            "clusters": [
                service(servers, health_checks, encryption),
                cluster("mock", [endpoint(upstreams["mock"])]),
                multiservice(upstreams),
            ],
        },
    }


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def endpoint(port):
    return {"endpoint": {"address": address(port)}}


def cluster(name, endpoints, **more):
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "30s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        **more,
    }


def service(ports, health_checks, encryption):
    http2 = {
        "@type": f"{TYPES}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    more = {
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2
        }
    }
    if health_checks:
        more["health_checks"] = [
            {
                "timeout": "5s",
                "interval": "0.1s",
                "no_traffic_interval": "0.1s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": "ratelimit"},
            }
        ]
        # Envoy must not send requests to unhealthy servers, even if no healthy server is left.
        more["common_lb_config"] = {"healthy_panic_threshold": {"value": 0}}
    if encryption:
        more["transport_socket"] = encryption
    return cluster("ratelimit", [endpoint(port) for port in ports], **more)


def encryption(folder, name):
    """Returns the TLS settings for connections to the service `name`."""

    def file(name):
        return {"filename": str(folder / name)}

    shown = {"certificate_chain": file("tls.crt"), "private_key": file("tls.key")}
    names = [{"san_type": "DNS", "matcher": {"exact": name}}]
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": f"{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": name,
            "common_tls_context": {
                "alpn_protocols": ["h2"],
                "tls_certificates": [shown],
                "validation_context": {
                    "trusted_ca": file("ca.crt"),
                    "match_typed_subject_alt_names": names,
                },
            },
        },
    }


def multiservice(upstreams):
    """Returns a cluster with two services. The metadata of a request selects one of them."""
    names = ["service_1", "service_2"]
    endpoints = [
        {
            "locality": {"region": name},
            "metadata": {"filter_metadata": {"locality": {"name": name}}},
            "lb_endpoints": [
                {
                    **endpoint(upstreams[name]),
                    "metadata": {"filter_metadata": {"envoy.lb": {"service": name}}},
                }
            ],
        }
        for name in names
    ]
    return {
        "name": "multiservice",
        "type": "STATIC",
        "connect_timeout": "30s",
        "load_assignment": {"cluster_name": "multiservice", "endpoints": endpoints},
        "lb_subset_config": {
            "fallback_policy": "ANY_ENDPOINT",
            "subset_selectors": [{"keys": ["service"]}],
        },
    }


def listener(version, name, timeout, deny):
    limit = {
        "@type": RATE_LIMIT,
        "domain": "rl",
        "timeout": timeout,
        "failure_mode_deny": deny,
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "ratelimit"}},
        },
    }
    if version >= RETRY_AFTER:
        limit["enable_retry_after_header"] = True
    # A separate filter frees slots. Only the routes with slots enable it.
    end = {"name": SLOT_END, "typed_config": limit, "disabled": True}
    filters = [
        ("envoy.filters.http.header_mutation", id_as_header()),
        ("envoy.filters.http.set_metadata", limits_of_requests()),
        ("envoy.filters.http.header_to_metadata", numbers_of_headers()),
        (FILTER, limit),
        ("envoy.filters.http.header_mutation", service_as_header()),
        ("envoy.filters.http.header_to_metadata", header_as_subset()),
        ("envoy.filters.http.router", {"@type": f"{TYPES}.filters.http.router.v3.Router"}),
    ]
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "http_filters": [
            end,
            *({"name": name, "typed_config": config} for name, config in filters),
        ],
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes(version)}]
        },
    }
    return {
        "name": name,
        "address": address(0),
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": manager,
                    }
                ]
            }
        ],
    }


def number(header):
    value = {"metadata_namespace": "numbers", "key": header, "type": "NUMBER"}
    return {"header": header, "on_header_present": value}


def numbers_of_headers():
    """Returns a filter that converts hits of requests and tokens of responses into numbers."""
    return {
        "@type": HEADER_TO_METADATA,
        "request_rules": [number("hits")],
        "response_rules": [number("x-tokens")],
    }


def service_as_header():
    """Returns the header that contains the service in the response's metadata."""
    value = f"%DYNAMIC_METADATA({FILTER}:metadata:service_with_quota:name)%"
    return header_mutation("x-service", value)


def id_as_header():
    """Returns the header with an id that the client cannot choose."""
    return header_mutation("x-slot-id", "%UNIQUE_ID%")


def header_mutation(name, value):
    append = {
        "header": {"key": name, "value": value},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }
    return {
        "@type": f"{TYPES}.filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {"request_mutations": [{"append": append}]},
    }


def header_as_subset():
    """Returns a filter that selects the subset of a cluster."""
    value = {"metadata_namespace": "envoy.lb", "key": "service"}
    return {
        "@type": HEADER_TO_METADATA,
        "request_rules": [{"header": "x-service", "on_header_present": value}],
    }


def limits_of_requests():
    """Returns a filter that adds limits to requests, 10 for each unit."""
    value = {unit: {"requests_per_unit": 10, "unit": unit} for unit in UNITS}
    return {
        "@type": f"{TYPES}.filters.http.set_metadata.v3.Config",
        "metadata": [{"metadata_namespace": "limits", "value": value}],
    }


def headers(*names):
    """Returns a descriptor of headers. Envoy leaves it out if the request lacks one of them."""
    return [{"request_headers": {"header_name": name, "descriptor_key": name}} for name in names]


def generic(key, value):
    return [{"generic_key": {"descriptor_key": key, "descriptor_value": value}}]


def asks(actions, **more):
    return {"actions": actions, **more}


def hits(number):
    return {"hits_addend": {"number": number}}


def route(path, *descriptors, domain=None, target="mock"):
    per_route = {
        "@type": f"{TYPES}.filters.http.ratelimit.v3.RateLimitPerRoute",
        "rate_limits": list(descriptors),
    }
    if domain is not None:
        per_route["domain"] = domain
    return {
        "match": {"path": path},
        "route": {"cluster": target, "timeout": "0s"},
        "typed_per_filter_config": {FILTER: per_route},
    }


def routes(version):
    return [*example(version), *lookups(), *ours(version)]


def example(version):
    """Returns the routes of the example of envoyproxy/ratelimit."""
    clusters = asks(headers("source_cluster", "destination_cluster"))
    foo_bar = asks(headers("foo", "bar"))
    services = [generic("service", "service_1"), generic("service", "service_2")]
    afterwards = {**hits(1), "apply_on_stream_done": True}
    found = [
        route("/twoheader", foo_bar, asks(headers("foo", "baz"))),
        route("/fourheader", foo_bar, clusters),
        route("/fiveheader", foo_bar, clusters, asks(headers("category"))),
        route("/unspec", asks(headers("unspec"))),
        route("/proxy", asks([{"source_cluster": {}}, {"destination_cluster": {}}])),
        # The limits of each route are separate, so that one wait ends all windows.
        route("/quota", *(asks(service) for service in services), domain="rl-quota"),
        route(
            "/tokenquota",
            asks(services[1], **hits(0)),
            asks(services[1], **afterwards),
            domain="rl-tokenquota",
        ),
    ]
    if version >= LOCALITY_METADATA:
        name = {
            "metadata": {
                "descriptor_key": "service",
                "source": "CLUSTER_LOCALITY_ENTRY",
                "metadata_key": {"key": "locality", "path": [{"key": "name"}]},
            }
        }
        multiservice = route(
            "/multiservice-tokenquota",
            *(asks(service, **hits(0)) for service in services),
            asks([name], **afterwards),
            domain="rl-multiservice",
            target="multiservice",
        )
        found.append(multiservice)
    return found


def lookups():
    def one(path, domain, *keys):
        return route(path, *(asks(headers(key)) for key in keys), domain=domain)

    def nested(path, *keys):
        return route(path, asks(headers(*keys)), domain="lookups")

    return [
        one("/unknown", "unknown", "hello"),
        one("/basic", "basic", "key1"),
        one("/another", "another", "key2", "key3", "key4"),
        one("/reload", "reload", "key1", "block"),
        one("/share", "share-threshold", "files", "files_no_share"),
        one("/lookups", "lookups", "key1", "key2", "key6", "shady", "wild", "midWild", "multiWild"),
        nested("/lookups/key1", "key1", "subkey1"),
        nested("/lookups/key2", "key2", "subkey"),
        nested("/lookups/wild", "nestedWild", "wild"),
        one("/quotas", "quotas", "five", "three", "none"),
        one("/headers", "headers", "ten"),
        *(limited(unit, domain) for unit in UNITS for domain in ["lookups", "unknown"]),
        route(
            "/near",
            asks(headers("near"), hits_addend={"format": "%DYNAMIC_METADATA(numbers:hits)%"}),
            domain="near",
        ),
    ]


def limited(unit, domain):
    """Returns a route whose requests contain the limit."""
    key = {"metadata_key": {"key": "limits", "path": [{"key": unit}]}}
    found = route(f"/limited/{domain}/{unit}", domain=domain)
    # Envoy 1.38 reads these limits only from the route, not from the configuration of the filter.
    limit = {"dynamic_metadata": key}
    found["route"]["rate_limits"] = [asks(headers("shady"), limit=limit)]
    return found


def ours(version):
    def policy(path, name, **more):
        return route(path, asks(generic("policy", name), **more), domain="ours")

    found = [
        policy("/probe", "probe"),
        policy("/banned", "banned"),
        policy("/swapped", "swapped"),
        policy("/gcra", "gcra"),
        policy("/counted", "counted"),
        policy("/week", "week"),
        route("/both", asks(generic("policy", "two")), asks(headers("user")), domain="ours"),
        route("/account", asks(headers("account")), domain="ours"),
        route("/address", asks([{"remote_address": {}}]), domain="ours"),
        route(
            "/tokens",
            asks(headers("tokens"), **hits(0)),
            asks(
                headers("tokens"),
                hits_addend={"format": "%DYNAMIC_METADATA(numbers:x-tokens)%"},
                apply_on_stream_done=True,
            ),
            domain="ours",
        ),
    ]
    if version >= REFUNDS:
        name = generic("policy", "in_flight")
        refund = {"hits_addend": {"number": 1, "is_negative_hits": True}}
        in_flight = route(
            "/in-flight",
            asks(name),
            asks(name, **refund, apply_on_stream_done=True),
            domain="ours",
        )
        found.append(in_flight)
        found += [
            slots("/slots", "slots", "x-request-id"),
            slots("/unique-slots", "unique_slots", "x-slot-id"),
            slots("/short-lease", "short_lease", "x-request-id"),
        ]
    return found


def slots(path, name, header):
    """Returns a route whose requests take a slot until they end, and charge a policy of the user."""
    id = {"request_headers": {"header_name": header, "descriptor_key": "id"}}
    slot = [*generic("policy", name), id]
    end = {"hits_addend": {"number": 1, "is_negative_hits": True}, "apply_on_stream_done": True}
    found = route(path, asks(slot), asks(headers("user")), domain="ours")
    ends = route(path, asks(slot, **end), domain="ours")["typed_per_filter_config"][FILTER]
    found["typed_per_filter_config"][SLOT_END] = ends
    return found
