module outrigger.example/hack/workload

go 1.26.0
